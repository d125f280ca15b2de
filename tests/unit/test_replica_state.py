"""The state of replicas in an entry: its JSON gives it back, and what can't be is damage that names field and value."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.entry import REPLICAS, Entry
from pyspark_commitlog.replication.protocol import entry_fields as entries_read
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.replica_state import (
    MAX_ABOVE_HW,
    MAX_ON_ROWS,
    MAX_PENDING,
    MAX_ROOTS,
    MAX_WHY,
    MetadataSet,
    ReplicaState,
    check_replicas,
    on_rows,
)

NUMBER = 20
STATE = ReplicaState(
    set=MetadataSet(2, "s", ("a", "m")),
    replicas=("a", "b", "c", "d"),
    isr=("a", "b"),
    joining=("c",),
    begins={"c": 4},
    leader="b",
    leader_epoch=3,
    hw=9,
    on={11: ("a", "b"), 12: ("a", "b"), 15: ("b",), 19: ()},
    pending_voids=((10, 14), (13, 16)),
    elected_ms=1_700_000_000_000,
    why="a did not answer",
    learned={"a": 9, "b": 10},
)

Change = Callable[[dict[str, Any]], object]


def written(state: ReplicaState) -> Any:
    return json.loads(json.dumps(state.to_json()))


def test_what_an_entry_says_is_read_once_and_little_of_it_is_kept() -> None:
    said = [{"state": {"replicas": written(replace(STATE, hw=number))}} for number in range(100)]
    entries = [Entry("topic", "append", "id", 20, "w", "", body, features=(REPLICAS,)) for body in said]

    found = [state_of(entry) for entry in entries]

    assert [state.hw for state in found] == list(range(100)), "also where all have one write id"
    assert state_of(entries[-1]) is found[-1]
    assert len(entries_read._read) <= entries_read._MOST_READ


def test_the_json_form_gives_the_state_back() -> None:
    data = written(STATE)

    check_replicas(data, NUMBER, "7.json")

    assert ReplicaState.from_json(data) == STATE


def test_a_reader_finds_the_members_by_these_names() -> None:
    assert written(STATE) == {
        "set": {"generation": 2, "id": "s", "roots": ["a", "m"]},
        "replicas": ["a", "b", "c", "d"],
        "isr": ["a", "b"],
        "joining": ["c"],
        "begins": {"c": 4},
        "leader": "b",
        "leaderEpoch": 3,
        "hw": 9,
        "on": [[0b11, 11, 1], [0b10, 15], [0, 19]],
        "pendingVoids": [[10, 14], [13, 16]],
        "electedMs": 1_700_000_000_000,
        "why": "a did not answer",
        "learned": {"a": 9, "b": 10},
    }


def test_thousands_of_appends_above_the_high_watermark_take_two_bytes_each() -> None:
    on = dict.fromkeys(range(10**6, 10**6 + MAX_ABOVE_HW), ("a", "b"))

    assert len(json.dumps(on_rows(on, STATE.replicas), separators=(",", ":"))) < 2 * MAX_ABOVE_HW + 20


def put(*path: str, value: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        for name in path[:-1]:
            data = data[name]
        data[path[-1]] = value

    return change


MANY = [f"r{n}" for n in range(MAX_ROOTS + 1)]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param(put("replicas", value=["a", "b", "c", "d", "a"]), "replicas", id="a replica twice"),
        pytest.param(put("replicas", value=["../a", "b", "c", "d"]), "replicas", id="no id"),
        pytest.param(put("replicas", value=["", "b", "c", "d"]), "replicas", id="an empty id"),
        pytest.param(put("replicas", value=MANY), "replicas", id="too many replicas"),
        pytest.param(put("set", "roots", value=["m", "m"]), "set.roots", id="a metadata root twice"),
        pytest.param(put("set", "roots", value=[]), "set.roots", id="nobody decides"),
        pytest.param(put("set", "roots", value=MANY), "set.roots", id="too many metadata roots"),
        pytest.param(put("set", "generation", value=-1), "set.generation", id="a generation below 0"),
        pytest.param(put("isr", value=["a", "b", "x"]), "isr", id="in sync and no replica"),
        pytest.param(put("isr", value=["b", "a"]), "isr", id="in another order"),
        pytest.param(put("isr", value=["b", "b"]), "isr", id="in sync twice"),
        pytest.param(put("isr", value=[]), "isr", id="nobody in sync"),
        pytest.param(put("joining", value=["x"]), "joining", id="joins and is no replica"),
        pytest.param(put("joining", value=["a", "c"]), "joining", id="joins and is in sync"),
        pytest.param(put("leader", value="c"), "leader", id="leads and is not in sync"),
        pytest.param(put("leader", value="x"), "leader", id="leads and is no replica"),
        pytest.param(put("leaderEpoch", value=-1), "leaderEpoch", id="an epoch below 0"),
        pytest.param(put("begins", value={"x": 1}), "begins", id="of no replica"),
        pytest.param(put("begins", value={"c": NUMBER + 1}), "begins", id="begins later"),
        pytest.param(put("learned", value={"c": 1}), "learned", id="of a root that is not in sync"),
        pytest.param(put("learned", value={"a": NUMBER + 1}), "learned", id="learned later"),
        pytest.param(put("hw", value=-1), "hw", id="below 0"),
        pytest.param(put("hw", value=NUMBER + 1), "hw", id="above the entry"),
        pytest.param(put("on", value=[[1, 9]]), "on", id="an append at the high watermark"),
        pytest.param(put("on", value=[[1, NUMBER + 1]]), "on", id="an append after the entry"),
        pytest.param(put("on", value=[[1, 10, 11]]), "on", id="a step beyond the entry"),
        pytest.param(put("on", value=[[1, 10, 0]]), "on", id="an append twice in a row"),
        pytest.param(put("on", value=[[1, 10], [2, 10]]), "on", id="an append in two rows"),
        pytest.param(put("on", value=[[16, 10]]), "on", id="on a fifth of four replicas"),
        pytest.param(put("on", value=[[1]]), "on", id="no number"),
        pytest.param(put("on", value=[[-1, 10]]), "on", id="bits below 0"),
        pytest.param(put("on", value=[[1, 10]] * (MAX_ON_ROWS + 1)), "on", id="too many rows"),
        pytest.param(put("on", value=[[1, 10, *[1] * MAX_ABOVE_HW]]), "on", id="a row too long"),
        pytest.param(put("pendingVoids", value=[[14, 14]]), "pendingVoids", id="voids itself"),
        pytest.param(put("pendingVoids", value=[[8, 9]]), "pendingVoids", id="not above the high watermark"),
        pytest.param(put("pendingVoids", value=[[10, NUMBER + 1]]), "pendingVoids", id="an election after the entry"),
        pytest.param(put("pendingVoids", value=[[10, 14], [11, 14]]), "pendingVoids", id="elections not ascending"),
        pytest.param(
            put("pendingVoids", value=[[10, 14]] * (MAX_PENDING + 1)), "pendingVoids", id="too many elections"
        ),
        pytest.param(put("electedMs", value=-2), "electedMs", id="no time"),
        pytest.param(put("why", value="x" * (MAX_WHY + 1)), "why", id="a long reason"),
    ],
)
def test_what_cannot_be_is_named_with_file_and_field(change: Change, field: str) -> None:
    data = written(STATE)
    change(data)

    with pytest.raises(
        CorruptionError, match=rf"^topics/t/journal/7\.json: (\$|state\.replication)\.{field}\b.*; restore the file$"
    ):
        check_replicas(data, NUMBER, "topics/t/journal/7.json")


@pytest.mark.parametrize("member", sorted(STATE.to_json()))
def test_no_member_may_be_missing(member: str) -> None:
    data = written(STATE)
    del data[member]

    with pytest.raises(CorruptionError, match=f"7.json: .*missing required field {member}; restore the file"):
        check_replicas(data, NUMBER, "7.json")


def test_appends_are_bounded_over_all_rows() -> None:
    most = [[1, 10, *[1] * (MAX_ABOVE_HW - 2)], [2, 2 * MAX_ABOVE_HW]]
    check_replicas({**written(STATE), "on": most}, 10 * MAX_ABOVE_HW, "7.json")

    with pytest.raises(CorruptionError, match=f"state.replication.on is .*, expected at most {MAX_ABOVE_HW} appends"):
        check_replicas({**written(STATE), "on": [*most, [1, 3 * MAX_ABOVE_HW]]}, 10 * MAX_ABOVE_HW, "7.json")


def test_what_another_release_adds_is_passed_over() -> None:
    check_replicas({**written(STATE), "later": 1}, NUMBER, "7.json")


@pytest.mark.parametrize(
    "bounds",
    [
        {"on": [[15, 10, *[1] * 10]]},
        {"pendingVoids": [[3, NUMBER]]},
        {"hw": NUMBER, "on": [], "pendingVoids": []},
        {"learned": {"a": NUMBER}, "begins": {"d": NUMBER}},
        {"electedMs": -1, "why": "x" * MAX_WHY},
    ],
    ids=["all on", "below the high watermark, by an unclean election", "all visible", "own number", "never"],
)
def test_what_is_at_a_bound_can_be(bounds: dict[str, Any]) -> None:
    check_replicas({**written(STATE), **bounds}, NUMBER, "7.json")
