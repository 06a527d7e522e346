"""How is Responses spoken?"""
