"""A log on several roots, while everything that can fail fails: see `__main__`."""
