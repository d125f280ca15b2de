"""What a damaged or lagging root takes from the others: frames and segments."""
