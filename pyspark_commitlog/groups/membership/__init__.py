"""Membership of a process in a group: member, heartbeats, eviction."""
