"""What must be known before a model is asked?"""
