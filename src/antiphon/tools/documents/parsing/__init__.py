"""How is a document parsed? Code that runs in a process of its own and imports no other room."""
