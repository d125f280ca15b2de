"""Columns of frames: what the Arrow messages of a frame hold."""
