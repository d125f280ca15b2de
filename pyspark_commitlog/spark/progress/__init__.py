"""A query's start, end, pauses and losses. Mostly pure."""
