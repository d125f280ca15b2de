"""Consumer groups: committed offsets by topic id, in a journal per group."""
