"""Lookups in a topic: by time, by key, by size, as a table."""
