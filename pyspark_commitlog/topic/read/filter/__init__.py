"""Conditions on rows: parsed, bound to columns, and tested on frames and their rows."""
