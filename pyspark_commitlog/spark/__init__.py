"""Spark's data source: options, source and sink over `log`."""
