"""Assignors, and the rebalance that calls them. Pure."""
