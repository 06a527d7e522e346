"""How do bytes travel? HTTP out of the building, with a limit on every wait and every size."""
