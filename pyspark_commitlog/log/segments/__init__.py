"""Segment files: appended to, indexed, written again without some records."""
