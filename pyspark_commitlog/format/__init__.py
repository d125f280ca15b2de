"""Bytes only: names, frames, indexes, entries. No I/O, no clock. See FORMAT.md."""
