"""How `antiphon check` judges a Responses server."""
