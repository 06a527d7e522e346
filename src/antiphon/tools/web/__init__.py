"""How is the web searched and read for a model?"""
