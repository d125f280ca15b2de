"""Replicas: whole roots that hold the same topic. ``state`` has what entries say of them, ``rules`` what may follow."""
