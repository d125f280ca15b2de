"""Access rules: what they allow, who checks them, and that nobody is locked out by accident."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.errors import AccessDeniedError, CorruptionError, NotFoundError, UsageError
from pyspark_commitlog.groups.state.group_state import Position
from pyspark_commitlog.producer.producer import Producer
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.access import Operation, Rule, allows
from tests.support.consumers import consumer
from tests.support.producers import options
from tests.support.records import append, batch_of
from tests.support.world import World

READ, WRITE, ADMIN, DESCRIBE = Operation.READ, Operation.WRITE, Operation.ADMIN, Operation.DESCRIBE


def acting(world: World, principal: str | None) -> CommitLog:
    """Return another process' log, run by `principal`."""
    return world.log().acting_as(principal)


@pytest.fixture
def ruled(world: World) -> World:
    """Topics `orders-eu` and `t` with a record each; ops may do all, etl write orders, web read all."""
    for name in ("orders-eu", "t"):
        append(world.create(name=name), batch_of([b"x"]))
    world.log().groups.commit("g", {"t": {0: 1}})
    world.log().access.allow("ops", "admin")
    ops = acting(world, "ops").access
    ops.allow("etl", "write", "orders-*")
    ops.allow("web", "read", "*")
    return world


# --- what rules allow -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "asked", "allowed"),
    [
        (Rule("a", READ, "t"), ("a", READ, "t"), True),
        (Rule("a", READ, "t"), ("b", READ, "t"), False),
        (Rule("a", READ, "t"), (None, READ, "t"), False),
        (Rule("a", READ, "t"), ("a", READ, "t2"), False),
        (Rule("a", READ, "t"), ("a", WRITE, "t"), False),
        (Rule("a", READ, "t"), ("a", ADMIN, "t"), False),
        (Rule("a", READ, "t"), ("a", DESCRIBE, "t"), True),
        (Rule("a", WRITE, "t"), ("a", DESCRIBE, "t"), True),
        (Rule("a", WRITE, "t"), ("a", READ, "t"), False),
        (Rule("a", ADMIN, "t"), ("a", READ, "t"), True),
        (Rule("a", ADMIN, "t"), ("a", WRITE, "t"), True),
        (Rule("a", READ, "or*"), ("a", READ, "orders"), True),
        (Rule("a", READ, "or*"), ("a", READ, "o"), False),
        (Rule("a", READ, "*"), ("a", READ, "t"), True),
        (Rule("*", READ, "t"), ("a", READ, "t"), True),
        (Rule("*", READ, "t"), (None, READ, "t"), True),
        (Rule("a", ADMIN, "or*"), ("a", ADMIN, "*"), False),
        (Rule("a", ADMIN, "*"), ("a", ADMIN, "*"), True),
    ],
)
def test_what_a_rule_allows(rule: Rule, asked: tuple[str | None, Operation, str], allowed: bool) -> None:
    assert allows([rule], *asked) is allowed


def test_without_rules_everything_is_allowed(world: World) -> None:
    assert allows([], None, ADMIN, "*")
    world.create()
    assert world.log().access.rules() == ()
    acting(world, None).topic("t").delete()


# --- who checks -------------------------------------------------------------------------------------------


def commit_by_handle(log: CommitLog) -> None:
    """Commit as consumers do, below the API."""
    handle = log.groups.open("g")
    handle.advance([Position("t", handle.topic_state("t").topic_id, 0, 1)])


CALLS: dict[str, tuple[str, Callable[[CommitLog], object]]] = {
    "create": ("admin", lambda log: log.create_topic("new")),
    "describe": ("describe", lambda log: log.topic("t").describe()),
    "read": ("read", lambda log: log.topic("t").read(0, 0)),
    "offsets_for_times": ("read", lambda log: log.topic("t").offsets_for_times({0: 0})),
    "add_partitions": ("admin", lambda log: log.topic("t").add_partitions(2)),
    "alter": ("admin", lambda log: log.topic("t").alter({"segment.ms": 1000})),
    "delete_records": ("admin", lambda log: log.topic("t").delete_records({0: 0})),
    "void": ("admin", lambda log: log.topic("t").void()),
    "delete": ("admin", lambda log: log.topic("t").delete()),
    "maintain": ("admin", lambda log: log.topic("t").maintain()),
    "verify": ("read", lambda log: log.topic("t").verify()),
    "alter_defaults": ("admin", lambda log: log.config.alter({"segment.ms": 1000})),
    "group commit": ("read", lambda log: log.groups.commit("g", {"t": {0: 1}})),
    "group handle": ("read", lambda log: commit_by_handle(log)),
    "group reset": ("read", lambda log: log.groups.reset("g", "t", "earliest", dry_run=False)),
    "group dry reset": ("read", lambda log: log.groups.reset("g", "t", "earliest")),
    "group delete": ("read", lambda log: log.groups.delete("g")),
    "group delete offsets": ("read", lambda log: log.groups.delete_offsets("g", "t")),
    "rules": ("admin", lambda log: log.access.allow("me", "admin")),
    "revoke": ("admin", lambda log: log.access.revoke("web", "read")),
    "clear": ("admin", lambda log: log.access.clear()),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_needs_its_operation_and_does_nothing_without(ruled: World, call: str) -> None:
    operation, act = CALLS[call]
    before = ruled.files(root=".")
    with pytest.raises(AccessDeniedError, match=rf"principal 'etl' may not {operation} "):
        act(acting(ruled, "etl"))
    assert ruled.files(root=".") == before
    if operation in ("read", "describe"):
        act(acting(ruled, "web"))
    else:
        with pytest.raises(AccessDeniedError):
            act(acting(ruled, "web"))
    if operation == "admin":
        act(acting(ruled, "ops"))


def test_a_refusal_advises_a_rule_that_there_can_be(ruled: World) -> None:
    with pytest.raises(AccessDeniedError, match="may not describe topic 't'") as refused:
        acting(ruled, "etl").topic("t").describe()
    assert "access.allow('etl', 'read', 't')" in str(refused.value)
    acting(ruled, "ops").access.allow("etl", "read", "t")
    assert acting(ruled, "etl").topic("t").describe().name == "t"


def test_names_of_topics_are_for_those_who_may_use_them(ruled: World) -> None:
    assert acting(ruled, "etl").topics() == ["orders-eu"]
    assert acting(ruled, "web").topics() == acting(ruled, "ops").topics() == ["orders-eu", "t"]
    assert acting(ruled, None).topics() == []
    assert acting(ruled, "etl").groups.describe("g").partitions == ()
    assert len(acting(ruled, "web").groups.describe("g").partitions) == 1


def test_the_principal_is_taken_from_the_environment(ruled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AccessDeniedError, match=r"no principal is set \(option 'principal', or COMMITLOG_PRINCIPAL\)"):
        CommitLog(str(ruled.path)).topic("t").read(0, 0)
    monkeypatch.setenv("COMMITLOG_PRINCIPAL", "web")
    assert len(CommitLog(str(ruled.path)).topic("t").read(0, 0)) == 1
    with pytest.raises(AccessDeniedError, match="principal 'etl'"):
        CommitLog(str(ruled.path), principal="etl").topic("t").read(0, 0)


# --- changing them ----------------------------------------------------------------------------------------


def test_rules_are_kept_sorted_and_come_and_go(ruled: World) -> None:
    ops = acting(ruled, "ops").access
    etl, all_, web = Rule("etl", WRITE, "orders-*"), Rule("ops", ADMIN, "*"), Rule("web", READ, "*")
    assert ops.rules() == (etl, all_, web)
    ops.allow("etl", "write", "orders-*")
    assert ops.rules() == (etl, all_, web)
    ops.revoke("etl", "write", "orders-*")
    assert ops.rules() == (all_, web)
    with pytest.raises(UsageError, match=r"no rule that etl may write orders-\*"):
        ops.revoke("etl", "write", "orders-*")
    ops.clear()
    assert ops.rules() == ()
    assert len(list((ruled.path / "access/journal").iterdir())) == 2


def test_somebody_can_always_change_the_rules(world: World) -> None:
    world.create()
    access = world.log().access
    for first in (("etl", "write", "*"), ("ops", "admin", "orders-*")):
        with pytest.raises(UsageError, match="nobody could change the rules any more"):
            access.allow(*first)
    access.allow("ops", "admin")
    ops = acting(world, "ops").access
    with pytest.raises(UsageError, match="nobody could change the rules any more"):
        ops.revoke("ops", "admin")
    ops.allow("root", "admin")
    ops.revoke("ops", "admin")
    assert ops.rules() == (Rule("root", ADMIN, "*"),)
    with pytest.raises(AccessDeniedError):
        ops.clear()


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (("", "read", "t"), "principal '' is not allowed"),
        (("a" * 256, "read", "t"), "is not allowed: 1 to 255 characters"),
        (("a", "describe", "t"), "operation 'describe' is not allowed: use read, write or admin"),
        (("a", "Read", "t"), "operation 'Read' is not allowed"),
        (("a", "read", "a*b"), r"topic name 'a\*b' is not allowed"),
        (("a", "read", "../x*"), "is not allowed"),
        (("a", "read", "__x"), "reserved"),
    ],
)
def test_a_rule_that_is_not_one_is_refused(ruled: World, rule: tuple[str, str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        acting(ruled, "ops").access.allow(*rule)


def test_there_is_a_bound(ruled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_commitlog.topic.access.MAX_RULES", 3)
    with pytest.raises(UsageError, match="4 rules are too many, at most 3"):
        acting(ruled, "ops").access.allow("x", "read")


def test_two_admins_at_once_lose_no_rule(ruled: World) -> None:
    """Rule R9: each attempt starts from the newest rules, and checks again that it may."""

    def meanwhile() -> None:
        other = acting(ruled, "ops").access
        other.allow("second", "admin")
        other.revoke("ops", "admin")

    between = on_path("access/journal", "put_if_absent", meanwhile)
    with pytest.raises(AccessDeniedError, match="'ops'"):
        ruled.log(hook=between).acting_as("ops").access.allow("x", "read")
    assert Rule("second", ADMIN, "*") in ruled.log().access.rules()
    assert Rule("x", READ, "*") not in ruled.log().access.rules()


def test_damaged_rules_allow_nothing(ruled: World) -> None:
    newest = max((ruled.path / "access/journal").iterdir())
    newest.write_bytes(newest.read_bytes().replace(b"web", b"wob"))
    with pytest.raises(CorruptionError):
        acting(ruled, "ops").topic("t").read(0, 0)


def test_there_are_no_rules_without_a_root(world: World) -> None:
    with pytest.raises(NotFoundError):
        world.log().access.rules()


# --- clients ----------------------------------------------------------------------------------------------


def test_a_consumer_asks_when_it_opens_a_topic(ruled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(consumer(ruled, "t", principal="web").poll()) == 1
    for settings in ({}, {"group_id": "g"}):
        with pytest.raises(AccessDeniedError, match=r"'etl' may not read topic 't'"):
            consumer(ruled, "t", principal="etl", **settings).poll()
    by_pattern = consumer(ruled, principal="nobody")
    by_pattern.subscribe(pattern=".*")
    assert by_pattern.poll() == []
    with pytest.raises(AccessDeniedError, match="no principal is set"):
        consumer(ruled, "t").poll()
    monkeypatch.setenv("COMMITLOG_PRINCIPAL", "web")
    assert len(consumer(ruled, "t").poll()) == 1


def test_a_producer_asks_when_it_opens_a_topic(ruled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with Producer.on(ruled.storage(), options(), "etl") as etl:
        assert etl.send("orders-eu", b"y").result(30).offset == 1
        with pytest.raises(AccessDeniedError, match=r"'etl' may not write topic 't'"):
            etl.send("t", b"y")
    with Producer.on(ruled.storage(), options()) as unnamed:
        with pytest.raises(AccessDeniedError, match="no principal is set"):
            unnamed.send("orders-eu", b"y")
        monkeypatch.setenv("COMMITLOG_PRINCIPAL", "etl")
        assert unnamed.send("orders-eu", b"y").result(30).offset == 2


# --- clients that are open --------------------------------------------------------------------------------


def test_a_consumer_notices_a_rule_that_is_gone_and_one_that_is_back(ruled: World) -> None:
    reader = consumer(ruled, "t", principal="web", metadata_max_age_ms=1000)
    assert len(reader.poll()) == 1
    acting(ruled, "ops").access.revoke("web", "read", "*")
    append(ruled.handle(), batch_of([b"y"]))
    ruled.clock.advance(999)
    assert [record.value for record in reader.poll()] == [b"y"]
    append(ruled.handle(), batch_of([b"z"]))
    ruled.clock.advance(1)
    for _ in range(2):
        with pytest.raises(AccessDeniedError, match="'web' may not read topic 't'"):
            reader.poll()
    acting(ruled, "ops").access.allow("web", "read", "t")
    assert [record.value for record in reader.poll()] == [b"z"]


def test_a_producer_notices_a_rule_that_is_gone_and_one_that_is_back(ruled: World) -> None:
    with Producer.on(ruled.storage(), options(metadata_max_age_ms=1000), principal="etl") as writer:
        assert writer.send("orders-eu", b"1").result().offset == 1
        acting(ruled, "ops").access.revoke("etl", "write", "orders-*")
        ruled.clock.advance(999)
        assert writer.send("orders-eu", b"2").result().offset == 2
        ruled.clock.advance(1)
        for _ in range(2):
            error = writer.send("orders-eu", b"3").exception()
            assert isinstance(error, AccessDeniedError)
        acting(ruled, "ops").access.allow("etl", "write", "orders-eu")
        assert writer.send("orders-eu", b"4").result().offset == 3
