"""Beside a session: its settings, its queries' lag, and the checkpoints of stopped queries."""
