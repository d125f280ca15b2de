"""Reads by offset, of segments and of unsettled records."""
