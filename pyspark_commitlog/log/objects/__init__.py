"""Settling, merging, compaction and retention without append (rules O1 to O13)."""
