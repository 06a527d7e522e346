"""What may be said? The protocol, pure: no I/O, no clock, no randomness, no environment."""
