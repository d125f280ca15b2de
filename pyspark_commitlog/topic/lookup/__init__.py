"""Lookups in a topic."""
