"""What an event may cost, counted: see `test_cost`."""
