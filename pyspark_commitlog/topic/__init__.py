"""One topic: its handle, journals, defaults and access rules; without Spark."""
