"""Which text does a document have? Files of many formats, parsed in processes with limits."""
