"""Verification of a topic's files, and voiding of lost records."""
