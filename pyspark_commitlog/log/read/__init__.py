"""From offsets to rows: of segments, and of what is not settled yet."""
