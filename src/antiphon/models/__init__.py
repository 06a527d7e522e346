"""What is known about a model? Facts, prices and lists, the same for both wings."""
