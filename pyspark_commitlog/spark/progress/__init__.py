"""Where a query starts, ends, waits, and what it lost. Mostly pure."""
