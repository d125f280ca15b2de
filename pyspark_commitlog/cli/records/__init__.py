"""Records in and out: `cat` and `produce`, as kcat does."""
