"""How do we ask? The room of the client; nothing lives here yet."""
