"""Members of a group in its newest entry, and their files. Pure.

Of every partition at most one member has it: `owned`, or `revoking` until given up. A commit counts from that
member in the newest generation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from pyspark_commitlog.format.entry import FORMAT_VERSION, Json
from pyspark_commitlog.format.shape import checked_json
from pyspark_commitlog.groups.state.group_shapes import File
from pyspark_commitlog.model import TopicPartition

#: Generation in a member's file before its first admission.
NEVER_IN = -1

Places = frozenset[TopicPartition]


class Phase(Enum):
    """The state of a group, by Kafka's names (`GroupState`)."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class Profile:
    """Description and wishes of a member.

    `topics` are given, or found by the member's `pattern`, which nobody else evaluates. `host` is `host/pid`.
    """

    client_id: str
    host: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignors: tuple[str, ...] = ("range",)
    instance_id: str | None = None
    session_timeout_ms: int = 45_000

    def to_json(self) -> Json:
        """Form for an entry, and for the member's file."""
        return {
            "clientId": self.client_id,
            "host": self.host,
            "topics": list(self.topics),
            "pattern": self.pattern,
            "assignors": list(self.assignors),
            "instanceId": self.instance_id,
            "sessionTimeoutMs": self.session_timeout_ms,
        }

    @classmethod
    def from_json(cls, data: Json) -> Profile:
        """Value of that form."""
        return cls(
            data["clientId"],
            data["host"],
            tuple(data["topics"]),
            data["pattern"],
            tuple(data["assignors"]),
            data["instanceId"],
            data["sessionTimeoutMs"],
        )


@dataclass(frozen=True, slots=True)
class MemberFile:
    """A member's file: all revoked up to `generation` is given up."""

    profile: Profile
    generation: int

    def encode(self) -> bytes:
        """Return the file's bytes."""
        profile = self.profile.to_json()
        return json.dumps({"formatVersion": FORMAT_VERSION, "generation": self.generation, **profile}).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> MemberFile:
        """Parse a member's file."""
        fields = checked_json(data, File, where)
        return cls(Profile.from_json(fields), fields["generation"])


@dataclass(frozen=True, slots=True)
class Member:
    """A member's row.

    `joined` is its admission's unique number. `revoking` must be given up before reassignment; `revoked_in` is the last
    generation that revoked.
    """

    profile: Profile
    joined: int
    owned: Places = frozenset()
    revoking: Places = frozenset()
    revoked_in: int = 0

    @property
    def places(self) -> Places:
        """Partitions it has, and may commit."""
        return self.owned | self.revoking


@dataclass(frozen=True, slots=True)
class TopicIncarnation:
    """A topic at assignment: its id and number of partitions."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Members:
    """All members of a group in one generation; `admitted` counts admissions ever."""

    generation: int = 0
    admitted: int = 0
    phase: Phase = Phase.EMPTY
    protocol: str | None = None
    topics: Mapping[str, TopicIncarnation] = field(default_factory=dict)
    rows: Mapping[str, Member] = field(default_factory=dict)

    def has(self, member_id: str, place: TopicPartition, topic_id: str) -> bool:
        """Whether a partition of a topic id is a member's."""
        row, incarnation = self.rows.get(member_id), self.topics.get(place.topic)
        return row is not None and incarnation is not None and incarnation.topic_id == topic_id and place in row.places

    def instance(self, instance_id: str | None) -> str | None:
        """Member that has a `group_instance_id`."""
        if instance_id is None:
            return None
        return next((m for m, row in self.rows.items() if row.profile.instance_id == instance_id), None)

    def to_json(self) -> Json:
        """Form for an entry; shared topic lists appear once."""
        wishes = {
            topics: number for number, topics in enumerate(dict.fromkeys(r.profile.topics for r in self.rows.values()))
        }
        return {
            "generation": self.generation,
            "admitted": self.admitted,
            "phase": self.phase.value,
            "protocol": self.protocol,
            "topics": {
                name: [incarnation.topic_id, incarnation.partitions] for name, incarnation in self.topics.items()
            },
            "wishes": [list(topics) for topics in wishes],
            "rows": {member_id: _row_to_json(row, wishes) for member_id, row in self.rows.items()},
        }

    @classmethod
    def from_json(cls, data: Json) -> Members:
        """Value of that form."""
        wishes = [tuple(topics) for topics in data["wishes"]]
        return cls(
            data["generation"],
            data["admitted"],
            Phase(data["phase"]),
            data["protocol"],
            {name: TopicIncarnation(*incarnation) for name, incarnation in data["topics"].items()},
            {member_id: _row_from_json(row, wishes) for member_id, row in data["rows"].items()},
        )


def _row_to_json(row: Member, wishes: Mapping[tuple[str, ...], int]) -> Json:
    return {
        **row.profile.to_json(),
        "topics": wishes[row.profile.topics],
        "joined": row.joined,
        "owned": _by_topic(row.owned),
        "revoking": _by_topic(row.revoking),
        "revokedIn": row.revoked_in,
    }


def _row_from_json(data: Json, wishes: Sequence[tuple[str, ...]]) -> Member:
    profile = replace(Profile.from_json({**data, "topics": ()}), topics=wishes[data["topics"]])
    return Member(profile, data["joined"], _places(data["owned"]), _places(data["revoking"]), data["revokedIn"])


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for place in sorted(places):
        by_topic.setdefault(place.topic, []).append(place.partition)
    return by_topic


def _places(data: Mapping[str, list[int]]) -> Places:
    return frozenset(TopicPartition(topic, number) for topic, numbers in data.items() for number in numbers)
