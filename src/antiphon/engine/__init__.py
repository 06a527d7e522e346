"""What happens in a turn? From a checked request to the last event, over any backend."""
