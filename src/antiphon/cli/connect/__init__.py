"""`antiphon connect`: settings of clients that are to use the gateway."""
