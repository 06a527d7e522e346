"""What can be on the wire? Pure: no I/O, no clock, no randomness, no environment."""
