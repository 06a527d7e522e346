"""Real clients, unmodified, against a real gateway: what works is what was run."""
