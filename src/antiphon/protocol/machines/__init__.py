"""How does a stream stay correct?"""
