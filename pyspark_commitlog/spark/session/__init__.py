"""Session settings, lag of queries, and checkpoints of stopped queries."""
