"""/v1/organization, over a real socket and through the official SDK."""
