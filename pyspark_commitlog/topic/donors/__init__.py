"""Frames and segments that a damaged or lagging root takes from others."""
