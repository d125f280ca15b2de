"""The log of one topic: staging, committing, settling, reading, maintenance; without Spark."""
