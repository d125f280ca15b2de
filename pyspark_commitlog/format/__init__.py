"""Bytes only: names, frames, indexes, entries. No I/O, no clock. FORMAT.md says the same in prose."""
