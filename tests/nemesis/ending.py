"""The end: all is mended, each root learns all and is maintained, and what it has is read."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark_commitlog.errors import CommitLogError
from tests.nemesis.cast import PATIENCE_SECONDS
from tests.nemesis.history import Committed, Read
from tests.nemesis.reading import read_at
from tests.nemesis.stage import DATA, GROUP, TOPIC, Stage


def settle_down(stage: Stage, topic: str) -> tuple[dict[str, list[Read]], list[str]]:
    """Have all roots learn all of a topic, and be maintained; return what each one has, and what is wrong."""
    wrong = _converged(stage, topic)
    for root in DATA:
        wrong += after(f"maintain and verify {topic} at {root}", lambda root=root: _looked_after(stage, topic, root))
    wrong += _converged(stage, topic)  # what maintenance has decided
    final: dict[str, list[Read]] = {}
    for root in DATA:
        wrong += after(
            f"read {topic} at {root}", lambda root=root: final.update({root: _all_of(stage, topic, root)}) or []
        )
    return final, wrong


def _converged(stage: Stage, topic: str) -> list[str]:
    """Have all roots learn all; return what is wrong."""
    log, until, failed = stage.log(DATA[0]), time.monotonic() + PATIENCE_SECONDS, ""
    while time.monotonic() < until:
        try:
            done = log.replicas.sync(topic)
            failed = "" if len(done.isr) == len(DATA) and not done.failed else str(done)
        except (CommitLogError, OSError) as error:
            failed = f"{type(error).__name__}: {error}"
        if not failed and not done.hw_raised:
            return []
        time.sleep(0.2)
    return [f"the replicas of {topic} do not converge: {failed}"] if failed else []


def after(what: str, act: Callable[[], list[str]]) -> list[str]:
    """Return what is wrong, an error too."""
    try:
        return act()
    except (CommitLogError, OSError) as error:
        return [f"{what}: {type(error).__name__}: {error}"]


def _looked_after(stage: Stage, topic: str, root: str) -> list[str]:
    here = stage.log(root)
    here.topic(topic).maintain()
    return [f"{topic} at {root}: {fault}" for fault in here.topic(topic).verify().faults]


def _all_of(stage: Stage, name: str, root: str) -> list[Read]:
    topic = stage.topic(root, name)
    _, state = topic.newest()
    ranges = zip(state.log_start, state.log_end, strict=True)
    return [read_at(root, topic, partition, start, end) for partition, (start, end) in enumerate(ranges)]


def committed(stage: Stage) -> list[Committed]:
    """Return what the group has committed."""
    handle = stage.log(DATA[0]).root.group(GROUP)
    offsets = handle.newest().offsets(handle.topic_state(TOPIC).topic_id)
    return [Committed(GROUP, partition, offset) for partition, offset in offsets.items()]
