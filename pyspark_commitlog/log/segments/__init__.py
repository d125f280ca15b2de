"""Segment files: appending, indexing, rewriting."""
