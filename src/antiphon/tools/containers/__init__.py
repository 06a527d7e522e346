"""Containers: the places where programs of models run, with their files and interpreters."""
