"""Which calls did a server leave in the text?"""
