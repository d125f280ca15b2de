"""Bytes only: names, frames, indexes, entries. No I/O, no clock. See FORMAT.md.

Decoders raise `CorruptionError` for damage, `UnsupportedError` for what a newer release wrote.
"""
