"""One long run of everything at once: `make soak MINUTES=60` (what it does and judges: `__main__`)."""
