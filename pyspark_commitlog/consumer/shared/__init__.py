"""Looks, decoded frames and the watcher that a process' consumers share."""
