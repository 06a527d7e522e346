"""How does X speak? One module per way of reaching a model."""
