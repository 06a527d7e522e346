"""`antiphon chat`: a conversation in the terminal."""
