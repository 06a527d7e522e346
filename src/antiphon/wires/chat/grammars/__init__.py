"""What does a grammar mean, and how does llama.cpp say it?"""
