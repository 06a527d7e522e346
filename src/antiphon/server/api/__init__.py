"""What does each route answer?"""
