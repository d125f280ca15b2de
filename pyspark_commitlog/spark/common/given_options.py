"""Case-insensitive lookup and checks of Spark options."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence

from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.instants import parse_instant
from pyspark_commitlog.spark.common.known_options import Option
from pyspark_commitlog.storage.clock import SystemClock
from pyspark_commitlog.text import did_you_mean, similar_names

log = logging.getLogger("pyspark_commitlog.spark")

#: Suffixes of a duration, and their milliseconds (Spark: `JavaUtils.timeStringAsMs`).
_UNITS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}
_STORAGE = "storage."
#: Prefix of topic configs among the options that create a topic.
TOPIC_PREFIX = "topic."
#: Options of the query that Spark hands to a source too.
PASSED = ("checkpointlocation", "queryname")
_KAFKA_PREFIXES = ("kafka.", "kafkaconsumer.", "fetchoffset.")
#: Properties that Spark adds when it asks for the columns of a SQL table; it repeats the table's options with a prefix.
_TABLE = ("location", "owner", "provider", "comment", "collation", "external", "is_managed_location", "table_type")
_TABLE_OPTION = "option."
# Spark hands a table's own OPTIONS to no Python source.
_IN_SQL = " (in SQL: FROM t WITH (path = '…', subscribe = '…'), INSERT INTO t WITH (path = '…', topic = '…') VALUES …)"
PATH_ADVICE = (
    "give the root of the commit log, for example .option('path', '/data/commitlog') or .load('/data/commitlog')"
)


class GivenOptions:
    """Options of a source or sink (`what`); refuses unknown ones.

    `passed` are lower-case options of the query, ignored.
    """

    def __init__(
        self, options: Mapping[str, str], known: Sequence[Option], what: str, passed: tuple[str, ...] = PASSED
    ) -> None:
        self._defaults = {option.name.lower(): option.default for option in known}
        self._values = {name.lower(): str(value) for name, value in options.items()}
        self._names = {name.lower(): name for name in options}
        self.storage = self._select_prefixed(_STORAGE)
        self.topic = self._select_prefixed(TOPIC_PREFIX) if f"{TOPIC_PREFIX}<config>" in self._defaults else {}
        self._check([option.name for option in known], what, passed)

    def _select_prefixed(self, prefix: str) -> dict[str, str]:
        return {self._names[n][len(prefix) :]: v for n, v in self._values.items() if n.startswith(prefix)}

    def _check(self, known: Sequence[str], what: str, passed: tuple[str, ...]) -> None:
        taken = {*(name.lower() for name in known), *passed}
        ignored = []
        for name in self._values:
            if name in taken or self._has_prefix(name):
                continue
            if _is_of_kafka(name):
                ignored.append(self._names[name])
            elif not self._is_of_table(name):
                raise self._unknown(name, known, what)
        if ignored:
            log.warning("options for Kafka clients do nothing here: %s", ", ".join(sorted(ignored)))

    def _has_prefix(self, name: str) -> bool:
        return name.startswith(_STORAGE) or (bool(self.topic) and name.startswith(TOPIC_PREFIX))

    def _is_of_table(self, name: str) -> bool:
        return "provider" in self._values and (name in _TABLE or name.startswith(_TABLE_OPTION))

    def _unknown(self, name: str, known: Sequence[str], what: str) -> OptionError:
        by_lower = {known_name.lower(): known_name for known_name in known}
        similar = did_you_mean(next((by_lower[close] for close in similar_names(name, by_lower)), None))
        every = f"; the {what} takes: {', '.join(known)}"
        return OptionError(f"unknown option {self._names[name]!r}{similar or every}")

    def text(self, name: str) -> str | None:
        """Option; None if missing or empty."""
        value = self._values.get(name.lower())
        return value or None

    def default(self, name: str) -> str:
        """Default of an option; empty if it has none."""
        return self._defaults.get(name.lower(), "")

    def word(self, name: str) -> str | None:
        """Option, stripped and in lower case."""
        value = self.text(name)
        return None if value is None else value.strip().lower()

    def missing(self, name: str, advice: str) -> OptionError:
        """Error for a missing option."""
        return OptionError(f"option {name!r} is missing: {advice}{'' if self._values else _IN_SQL}")

    def required(self, name: str, advice: str) -> str:
        """Return an option; `advice` ends the error if missing."""
        value = self.text(name)
        if value is None:
            raise self.missing(name, advice)
        return value

    def flag(self, name: str) -> bool:
        """Option that is `true` or `false`, the default of one without."""
        word = self.word(name)
        if word is None:
            return self.default(name) == "true"
        if word not in ("true", "false"):
            raise OptionError(f"option {name!r}={self.text(name)!r}: use true or false")
        return word == "true"

    def number(self, name: str, minimum: int) -> int | None:
        """64-bit integer of at least `minimum`, or None."""
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = minimum - 1
        if not minimum <= number <= LONG_MAX:
            raise OptionError(f"option {name!r}={value!r}: use a whole number, at least {minimum}, of 64 bits")
        return number

    def names(self, name: str) -> tuple[str, ...] | None:
        """Comma-separated names of an option, or None."""
        value = self.text(name)
        return None if value is None else tuple(part.strip() for part in value.split(","))

    def instant(self, name: str) -> int | None:
        """Point in time in ms since 1970, or None."""
        value = self.text(name)
        return None if value is None else instant_ms(name, value)

    def milliseconds(self, name: str) -> int:
        """Duration such as `15m` in ms, the default unit."""
        value = self.text(name) or self.default(name)
        match = re.fullmatch(r"\s*([0-9]+)\s*([a-z]*)\s*", value.lower())
        if match is None or match[2] not in _UNITS:
            raise OptionError(
                f"option {name!r}={value!r}: use a duration like 15m, 30s or 500ms; without unit it is ms"
            )
        return int(int(match[1]) * _UNITS[match[2]])


def instant_ms(name: str, text: str) -> int:
    """Parse an option's point in time to ms since 1970."""
    try:
        return parse_instant(text, SystemClock().now_ms())
    except ValueError as error:
        raise OptionError(f"option {name!r}={text!r}: {error}") from None


def _is_of_kafka(name: str) -> bool:
    return name.startswith(_KAFKA_PREFIXES) or name == "groupidprefix"
