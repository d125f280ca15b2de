"""Consumer groups: committed offsets by topic id, in journals."""
