"""From rows to a commit."""
