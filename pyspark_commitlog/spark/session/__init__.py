"""Session settings, lag of queries, and their checkpoints."""
