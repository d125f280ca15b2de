"""What a group is: what its journal says, its members among it, and the handle on it."""
