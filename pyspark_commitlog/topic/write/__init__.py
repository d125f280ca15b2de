"""Writes: from rows to a commit."""
