"""Who runs a call? The room of tools run by the gateway; nothing lives here yet."""
