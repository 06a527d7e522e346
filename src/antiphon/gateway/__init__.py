"""How is it put together? The composition root: settings, start, workers."""
