"""Metadata roots: one, or a quorum of several, decides entries."""
