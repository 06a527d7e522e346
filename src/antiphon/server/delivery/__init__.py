"""How do events reach a client?"""
