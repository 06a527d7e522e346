"""The extension for VS Code, as far as it can be tested without VS Code."""
