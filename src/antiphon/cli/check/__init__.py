"""`antiphon check`: does a server conform to the protocol?"""
