"""`antiphon run`: a client program with a gateway of its own."""
