"""How do we answer HTTP? Routes, limits, keys and errors around the engine."""
