"""How does a chat application see it? The room of the host; nothing lives here yet."""
