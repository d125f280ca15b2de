"""A root that stood alone, and those that join it."""

from __future__ import annotations

from pathlib import Path

from tests.support.replicas import CONFIG, Replicated


class Grown(Replicated):
    """Roots `b` and `c` that join `a`, which stood alone and decides."""

    def decided_log(self, root: str = "a", name: str = "t"):  # type: ignore[no-untyped-def]
        """Return what another process decides with."""
        return super().decided_log(root, name)


def alone(path: Path) -> Grown:
    """Return a root that stands alone, with a topic of two records."""
    roots = Grown(path)
    roots.log("a").create_topic("t", 1, CONFIG)
    roots.write(b"0", topic=roots.at("a"))
    roots.write(b"1", topic=roots.at("a"))
    return roots


def add(roots: Grown, names: str = "bc") -> None:
    """Have roots join."""
    roots.log("a").replicas.add([str(roots.path / name) for name in names])
