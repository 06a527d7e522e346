"""Which backend answers?"""
