"""One topic: its handle, journals, defaults and access rules; without Spark.

Reads raise `CorruptionError` for damage, `TopicChangedError` if their incarnation is gone.
"""
