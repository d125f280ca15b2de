"""Damage to the files of a topic, and which of their bytes count."""

from __future__ import annotations

import random
from pathlib import Path

from pyspark_commitlog.topic.state.topic_state import INLINE
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.world import World


def flip(path: Path, chance: random.Random) -> None:
    """Flip a bit."""
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(data))


def cut(path: Path, chance: random.Random) -> None:
    """Lose the end."""
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def zero(path: Path, chance: random.Random) -> None:
    """Lose all content."""
    path.write_bytes(bytes(path.stat().st_size))


def remove(path: Path, chance: random.Random) -> None:
    """Lose the file."""
    path.unlink()


def published(world: World, topic: TopicLog) -> dict[str, int]:
    """Return the files that the newest entries name, and how many of their first bytes count.

    Those are segments with their indexes, manifests, chunks that are not settled, the entries that readers may still
    need (without their inline bytes, where those are settled), the newest of both journals, and their side files.
    """
    stored, state = topic.newest()
    settle_entry, settled = topic.settled(state.topic_id)
    paths = topic.paths(state.topic_id)
    counted: dict[str, int] = {}
    for partition, row in enumerate(settled.partitions):
        at = row.active.index
        lengths = {"log": row.active.length, "index": at.offset_bytes, "timeindex": at.time_bytes}
        named = [(row.active.stem, lengths)]
        if row.manifest is not None:
            counted[f"{paths.manifests}/{row.manifest.name}"] = row.manifest.checked.length
        sealed = topic.sealed(settled, partition)
        named += [(s.stem, {"log": s.length, "index": s.offset_bytes, "timeindex": s.time_bytes}) for s in sealed]
        for stem, used in named:
            counted |= {paths.segment_file(partition, stem, suffix): length for suffix, length in used.items()}
    needed = range(max(settled.oldest_unsettled, state.created + 1), stored.sequence + 1)
    entries = [topic.journal.read(n).entry for n in needed]
    for entry in entries:
        chunks = topic.chunks(entry)
        used = {e.chunk for e in topic.extents(entry) if e.end_offset > settled.partition(e.partition).end_offset}
        counted |= {paths.chunk(chunks[n].name): chunks[n].length for n in used - {INLINE}}
        path = f"topics/{topic.name}/journal/{entry.sequence:020d}.json"
        counted[path] = (world.path / path).stat().st_size if INLINE in used else entry.line_bytes
    tables = [entry.body.get(kind) for entry in entries for kind in ("chunks", "extents")]
    tables += [settle_entry.entry.body["partitions"], state.writers.snapshot]
    counted |= {f"{paths.side}/{table['file']}": table["length"] for table in tables if isinstance(table, dict)}
    for path, entry in zip(newest(topic), (stored.entry, settle_entry.entry), strict=True):
        counted.setdefault(path, entry.line_bytes)
    return {path: length for path, length in counted.items() if length}


def newest(topic: TopicLog) -> tuple[str, str]:
    """Return the newest entries of both journals: when one of them is gone, the one before it is the newest."""
    stored, state = topic.newest()
    settle_entry, _ = topic.settled(state.topic_id)
    settle_path = f"{topic.paths(state.topic_id).settle}/{settle_entry.sequence:020d}.json"
    return f"topics/{topic.name}/journal/{stored.sequence:020d}.json", settle_path
