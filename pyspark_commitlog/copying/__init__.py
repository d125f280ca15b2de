"""Copies of topics between two roots: same topic ids, offsets and histories (docs/explanation/design/copies.md)."""
