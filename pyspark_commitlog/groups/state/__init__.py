"""State of a group: journal, members, handle."""
