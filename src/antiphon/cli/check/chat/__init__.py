"""How `antiphon check` judges a chat completions server."""
