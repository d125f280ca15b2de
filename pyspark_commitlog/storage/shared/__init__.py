"""Pools, caches and read-ahead that a process shares."""
