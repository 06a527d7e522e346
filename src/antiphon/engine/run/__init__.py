"""What happens while a model answers?"""
