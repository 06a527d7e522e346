"""Programs of models that call tools: JavaScript in the sandbox, replayed with recorded results."""
