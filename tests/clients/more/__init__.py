"""Large clients, which scripts/test-more runs."""
