"""Maintenance of a topic: settling, retention, compaction, round by round."""
