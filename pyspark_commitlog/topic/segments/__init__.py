"""Segment files: their frames, appending, indexing, rewriting."""
