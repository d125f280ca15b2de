"""An opened root: its marker, and the handles of its topics and groups."""
