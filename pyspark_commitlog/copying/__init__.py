"""Copies of topics between roots: same ids, offsets, histories."""
