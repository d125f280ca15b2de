"""What keeps a topic small and fast: settling, retention, compaction, collection."""
