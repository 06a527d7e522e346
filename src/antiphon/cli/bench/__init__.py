"""`antiphon bench`: how fast is a server?"""
