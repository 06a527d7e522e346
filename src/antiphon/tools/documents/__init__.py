"""What does a document say? Files of many formats to text, in a process with limits."""
