"""How a process takes part in a group: its member, heartbeats, and the look after other members."""
