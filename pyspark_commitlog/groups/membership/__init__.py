"""Membership of a process in a group."""
