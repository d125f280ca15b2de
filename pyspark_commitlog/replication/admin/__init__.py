"""Operators' changes of replicas."""
