"""How does a peer speak? Pure: no I/O, no clock, no randomness, no environment."""
