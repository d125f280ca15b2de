"""Consumer groups: committed offsets by topic id, in a journal for each group. Knows nothing of Spark."""
