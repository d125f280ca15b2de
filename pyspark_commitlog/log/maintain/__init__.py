"""Maintenance of a topic: settling, retention, compaction, collection."""
