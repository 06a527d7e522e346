"""Who runs a call? The contract of hosted tools, their registry and their runners."""
