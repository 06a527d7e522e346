"""How is Anthropic's Messages API spoken? As a door: bodies to requests, events to its events."""
