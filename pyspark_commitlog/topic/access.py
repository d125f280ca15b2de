"""Access rules of principals for topics, as Kafka's ACLs.

They are allow rules in a root's journal that each client checks: no security boundary, as principals are not
authenticated (docs/how-to/access.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from pyspark_commitlog.config import ALL, PRINCIPAL_VARIABLE
from pyspark_commitlog.errors import AccessDeniedError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.format.shape import Shape, check, damage
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.replication.leader.quorum_journal import SettingsJournal, settings_journal
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.storage import Storage, environment

MAX_RULES = 1000
_MAX_PRINCIPAL = 255
_Change = Callable[[set["Rule"]], set["Rule"]]
_PREFIX = re.compile(r"[a-zA-Z0-9._-]{0,248}\*")


class Operation(StrEnum):
    """Operation on a topic (Kafka: `AclOperation`).

    Each other one implies `DESCRIBE`, `ADMIN` all.
    """

    DESCRIBE = "describe"
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """Permission of an operation on a topic, or a prefix with `*`."""

    principal: str
    operation: Operation
    topic: str

    def covers(self, principal: str | None, operation: Operation, topic: str) -> bool:
        """Return whether the rule allows this; `topic` may be a prefix."""
        if self.principal not in (principal, ALL) or not _implies(self.operation, operation):
            return False
        return topic.startswith(self.topic[:-1]) if self.topic.endswith(ALL) else topic == self.topic


def _implies(given: Operation, asked: Operation) -> bool:
    return given in (asked, Operation.ADMIN) or asked == Operation.DESCRIBE


def allows(rules: Iterable[Rule], principal: str | None, operation: Operation, topic: str) -> bool:
    """Whether a rule, or having none, allows it (pure)."""
    rules = tuple(rules)
    return not rules or any(rule.covers(principal, operation, topic) for rule in rules)


class Access:
    """Rules of a root for one principal, by the newest entry.

    Args:
        storage: the root; not touched before a call.
        principal: None for that of `COMMITLOG_PRINCIPAL`.
        changed: called after a change of the rules.
        roots: those that belong together, if several decide.
    """

    def __init__(
        self,
        storage: Storage,
        principal: str | None,
        changed: Callable[[], None] | None = None,
        roots: Roots | None = None,
    ) -> None:
        self._storage, self._changed, self._roots = storage, changed, roots
        self.principal = principal if principal is not None else environment(PRINCIPAL_VARIABLE)

    def rules(self) -> tuple[Rule, ...]:
        """Return all rules, sorted; without any, everything is allowed.

        Raises:
            CorruptionError: the newest entry is damaged; that allows nothing.
        """
        return _rules(self._journal().newest())

    def permitted_topics(self, operation: Operation, topics: Iterable[str]) -> list[str]:
        """Topics on which the operation is allowed."""
        rules = self.rules()
        return [topic for topic in topics if allows(rules, self.principal, operation, topic)]

    def check(self, operation: Operation, *topics: str) -> None:
        """Refuse an operation that is not allowed (`AccessDeniedError`)."""
        rules = self.rules()
        for topic in topics:
            self._check(rules, operation, topic)

    def allow(self, principal: str, operation: str, topic: str = ALL) -> None:
        """Add a rule; the first must make somebody admin of all topics.

        Args:
            principal: `*` for everybody.
            operation: `read`, `write`, or `admin`: both, and to create, alter and delete the topic.
            topic: a name, a prefix as in `orders-*`, or `*` for all.

        Raises:
            UsageError: a value that is not allowed, or a first rule that would lock everybody out.
            AccessDeniedError: the caller is no admin of all topics.
        """
        rule = checked(principal, operation, topic)
        self._change(lambda rules: {*rules, rule})

    def add(self, rules: Iterable[Rule]) -> None:
        """Add rules by one entry; raise as `allow`."""
        added = set(rules)
        self._change(lambda before: before | added)

    def revoke(self, principal: str, operation: str, topic: str = ALL) -> None:
        """Remove a rule.

        Open clients notice within `metadata_max_age_ms`, a query at its next batch.

        Raises:
            UsageError: there is no such rule, or it is the last admin's of all topics.
            AccessDeniedError: the caller is no admin of all topics.
        """
        rule = checked(principal, operation, topic)

        def remove_rule(rules: set[Rule]) -> set[Rule]:
            if rule not in rules:
                raise UsageError(f"there is no rule that {principal} may {operation} {topic}; nothing was changed")
            return rules - {rule}

        self._change(remove_rule)

    def clear(self) -> None:
        """Remove all rules, so that everything is allowed.

        Raises:
            AccessDeniedError: the caller is no admin of all topics.
        """
        self._change(lambda rules: set(), clear=True)

    def _change(self, change: _Change, *, clear: bool = False) -> None:
        def plan(base: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
            before = _rules(base)
            self._check(before, Operation.ADMIN, ALL)
            after = tuple(sorted(change(set(before))))
            if not clear:
                _check_all(after)
            if base is None and self._roots is None:
                self._storage.make_directory(paths.ACCESS_JOURNAL)
            rows = [[rule.principal, rule.operation.value, rule.topic] for rule in after]
            return Unchanged(None) if after == before else Draft("alter", "", {"rules": rows}, result=None)

        journal = self._journal()
        journal.append(plan)
        journal.trim()
        if self._changed is not None:
            self._changed()

    def _check(self, rules: tuple[Rule, ...], operation: Operation, topic: str) -> None:
        if allows(rules, self.principal, operation, topic):
            return
        subject = (
            f"no principal is set (option 'principal', or {PRINCIPAL_VARIABLE}), and not everybody may"
            if self.principal is None
            else f"principal {self.principal!r} may not"
        )
        what = "all topics" if topic == ALL else f"topic {topic!r}"
        lacks = Operation.READ if operation is Operation.DESCRIBE else operation  # no rule is for `describe` alone
        raise AccessDeniedError(
            f"{subject} {operation} {what} of {self._storage.url}: ask an admin of the root for "
        ).advising(
            f"access.allow({self.principal or '…'!r}, '{lacks}', {topic!r})",
            f"commitlog access allow {self._storage.url} {self.principal or 'PRINCIPAL'} {lacks} {topic!r}",
        )

    def faults(self) -> list[str]:
        """Faults of the remaining entries."""
        return self._journal().faults()

    def _journal(self) -> SettingsJournal:
        return settings_journal(self._storage, self._roots, paths.ACCESS_JOURNAL, "access", _check_entry)


def checked(principal: str, operation: str, topic: str) -> Rule:
    """Rule, checked (pure).

    Raises:
        UsageError: names the value and what is allowed.
    """
    if not isinstance(principal, str) or not principal.strip() or len(principal) > _MAX_PRINCIPAL:
        allowed = f"1 to {_MAX_PRINCIPAL} characters, or * for everybody"
        raise UsageError(f"principal {principal!r} is not allowed: {allowed}")
    if operation not in (Operation.READ, Operation.WRITE, Operation.ADMIN):
        raise UsageError(f"operation {operation!r} is not allowed: use read, write or admin")
    if not isinstance(topic, str) or not _PREFIX.fullmatch(topic):
        paths.check_topic_name(topic)
    return Rule(principal, Operation(operation), topic)


def _check_all(rules: tuple[Rule, ...]) -> None:
    if not any(rule.covers(rule.principal, Operation.ADMIN, ALL) for rule in rules):
        raise UsageError(
            "nobody could change the rules any more: first, and last, somebody must be admin of all topics. Nothing "
            "was changed; begin with "
        ).advising("access.allow('ops', 'admin', '*')", "commitlog access allow ROOT ops admin")
    if len(rules) > MAX_RULES:
        raise UsageError(f"{len(rules)} rules are too many, at most {MAX_RULES} are allowed: use prefixes")


_Row = tuple[str, Literal["read", "write", "admin"], str]


class _RulesEntry(Shape):
    rules: Annotated[tuple[_Row, ...], Meta(max_length=MAX_RULES)]


def _check_entry(body: Json, where: str) -> None:
    for number, row in enumerate(check(body, _RulesEntry, where).rules):
        try:
            checked(*row)
        except UsageError as error:
            raise damage(where, f"rules[{number}]", list(row), str(error)) from error


def _rules(stored: Stored | None) -> tuple[Rule, ...]:
    rows = () if stored is None else stored.entry.body["rules"]
    return tuple(Rule(principal, Operation(operation), topic) for principal, operation, topic in rows)
