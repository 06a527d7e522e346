"""What is asked of a model? Pure, as the protocol is."""
