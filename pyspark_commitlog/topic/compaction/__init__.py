"""Log compaction: the last record per key."""
