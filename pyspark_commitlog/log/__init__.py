"""The log of one topic: staging, committing, settling, reading, collecting. Knows nothing of Spark."""
