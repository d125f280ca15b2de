"""Topics and partitions that a query selects. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.format.given_json import RepeatedKeyError, parse_json
from pyspark_commitlog.format.paths import check_topic_name, is_topic_name

#: A character class of Java's with a nested class or an intersection.
_OF_JAVA = re.compile(r"\[\^?\]?[^]]*?(?:\[|&&)")


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Group of a query, and its share (k, n): partitions congruent k - 1 modulo n."""

    name: str
    share: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Topics and partitions of a query (Spark: `ConsumerStrategy`).

    `topics` are sorted; empty with a `pattern`. `assigned`: ascending partitions of each topic; None takes all, also
    later ones.
    """

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = field(default=None)
    share: tuple[int, int] = (1, 1)

    @property
    def in_words(self) -> str:
        """Topics in words."""
        return ", ".join(self.topics) if self.pattern is None else f"those that match {self.pattern.pattern!r}"

    def takes(self, topic: str) -> bool:
        """Whether a topic is selected."""
        return topic in self.topics if self.pattern is None else self.pattern.fullmatch(topic) is not None

    def select_topics(self, names: Iterable[str]) -> list[str]:
        """Return the names that match, sorted; reserved ones never do."""
        return sorted(name for name in names if self.takes(name) and is_topic_name(name))

    def partitions(self, topic: str, count: int) -> Sequence[int]:
        """Partitions of a topic that are read."""
        number, of = self.share
        if self.assigned is None:
            return range(number - 1, count, of)
        for partition in self.assigned[topic]:
            if partition >= count:
                raise OptionError(f"option 'assign': topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
        return tuple(partition for partition in self.assigned[topic] if partition % of == number - 1)


def by_name(text: str) -> TopicSelection:
    """Parse option `subscribe`: topics, separated by commas."""
    topics = tuple(sorted({check_topic_name(name.strip()) for name in text.split(",") if name.strip()}))
    if not topics:
        raise OptionError(f"option 'subscribe'={text!r}: name at least one topic")
    return TopicSelection(topics)


def by_pattern(text: str) -> TopicSelection:
    """Parse option `subscribePattern`: a regular expression for whole names."""
    if _OF_JAVA.search(re.sub(r"\\.", "", text)):
        raise OptionError(
            f"option 'subscribePattern'={text!r}: '[' or '&&' inside a class nests or intersects classes in Java, and "
            "means itself in Python, whose expressions these are: write one class, or a lookahead such as (?!x)[a-z]"
        )
    try:
        return TopicSelection(pattern=re.compile(text))
    except re.error as error:
        raise OptionError(f"option 'subscribePattern'={text!r}: not a regular expression of Python: {error}") from None


def by_partition(text: str) -> TopicSelection:
    """Parse option `assign`: JSON, topic -> list of partitions."""
    wrong = OptionError(f"option 'assign'={text!r}: use JSON like {{\"flights\": [0, 1]}}: at least one partition each")
    try:
        parsed = parse_json(text)
    except RepeatedKeyError as error:
        raise OptionError(f"option 'assign'={text!r}: {error}") from None
    except ValueError:
        raise wrong from None
    if not isinstance(parsed, dict) or not parsed or not all(_are_partitions(numbers) for numbers in parsed.values()):
        raise wrong
    assigned = {check_topic_name(topic): tuple(sorted(set(parsed[topic]))) for topic in sorted(parsed)}
    return TopicSelection(tuple(assigned), assigned=assigned)


def _are_partitions(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(number) is int and number >= 0 for number in value)
