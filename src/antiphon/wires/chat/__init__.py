"""Chat completions: what both wings send to a chat server and read from it."""
