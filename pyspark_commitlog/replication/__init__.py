"""Replicas: whole roots that hold the same topic.

Calls raise `ReplicaNotAvailableError` if the metadata root, or a majority of several, does not answer; for other
roots `CommitLogError` or `OSError`.
"""
