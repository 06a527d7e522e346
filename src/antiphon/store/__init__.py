"""What do we remember? One behaviour, several places to keep it."""
