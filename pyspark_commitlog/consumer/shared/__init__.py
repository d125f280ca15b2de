"""What the consumers of a process have in common: looks at journals, decoded frames, and the thread that wakes them."""
