"""Store what Kafka's assignors say, for tests without Kafka: `python -m tests.kafka.make_assignments`."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tests.kafka import toolchain
from tests.kafka.assignors import KafkaAssignors, kafka_assignors
from tests.support.rounds import STORED, Case

#: Histories by their seeds. Those of `sticky` tell every step of that assignor from its neighbours.
SEEDS = {
    "range": (0, 1, 2),
    "roundrobin": (0, 1, 2),
    "sticky": (14, 16, 54, 75, 92, 116, 177, 230),
    "cooperative-sticky": (3, 5, 14, 19),
}


def cases(kafka: KafkaAssignors) -> Iterable[Case]:
    """Yield what is stored."""
    for name, seeds in SEEDS.items():
        for seed in seeds:
            for asked, found in kafka.rounds(name, seed):
                yield Case(name, asked, found)


def text(kafka: KafkaAssignors) -> str:
    """Return the file's text, a case on each line."""
    lines = ",\n".join(json.dumps(case.to_json()) for case in cases(kafka))
    return f'{{"kafka": "{kafka.version}", "cases": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    with kafka_assignors(toolchain.java()) as kafka:
        STORED.write_text(text(kafka))
