"""How does a chat application speak? The bridge protocol: messages, parts and their lines."""
