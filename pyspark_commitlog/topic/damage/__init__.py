"""Verification of a topic's files, salvage of damaged ones, and voiding of lost records."""
