"""The sink: what its tasks stage, and how the driver commits it."""
