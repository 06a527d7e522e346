"""How `antiphon check` judges a Messages server."""
