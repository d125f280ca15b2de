"""Settle, merge, compact and let go where nothing can be appended: operations on segment objects (rules O1 to O13)."""
