"""State of a topic in the entries of its journals. No I/O but for its directories."""
