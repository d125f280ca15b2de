"""Settling: committed frames become segments, with or without append."""
