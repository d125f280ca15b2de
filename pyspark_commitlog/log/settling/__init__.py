"""Common parts of settlers, with or without append."""
