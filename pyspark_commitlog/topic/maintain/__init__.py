"""Maintenance of a topic: settling, retention, index checks, round by round."""
