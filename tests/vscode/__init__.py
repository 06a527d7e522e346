"""Real VS Code with its own chat, in a real browser, on a real gateway: scripts/test-vscode."""
