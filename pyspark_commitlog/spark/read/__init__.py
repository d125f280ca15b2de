"""Readers of the source: selection of records, plans, offsets."""
