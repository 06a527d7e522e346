"""How are chat completions said? What both wings write to a chat server and read from it."""
