"""What is stored of a turn, and who reads it later?"""
