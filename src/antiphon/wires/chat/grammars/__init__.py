"""What does a grammar mean, and how is it written for llama.cpp?"""
