"""What readers make of a root that was restored from a copy."""
