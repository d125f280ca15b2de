"""Topics as one consumer's principal sees them (Kafka: `ConsumerMetadata`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress

from pyspark_commitlog.config import MAX_PARTITIONS
from pyspark_commitlog.consumer.consumer_config import ConsumerConfig, check_places
from pyspark_commitlog.consumer.shared.shared_topic import SharedTopic
from pyspark_commitlog.consumer.shared.watcher import SharedRoot
from pyspark_commitlog.consumer.subscription_state import SubscriptionState
from pyspark_commitlog.errors import CommitLogError, CorruptionError, UnknownTopicError
from pyspark_commitlog.format.paths import is_topic_name
from pyspark_commitlog.format.schema.topic_schema import TopicSchema
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.lookup.fetch import RecordColumns
from pyspark_commitlog.topic.lookup.timestamps import OffsetAndTimestamp, find_time
from pyspark_commitlog.topic.read.named_columns import NamedColumns, Schemas, name_columns
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import check_partition
from pyspark_commitlog.topic.view import View

#: Unassigned topics that a consumer keeps at a look, and at most between looks.
_OTHERS, _MOST_OTHERS = 8, 512
#: Least interval of access checks and topic listings if each look is a request.
_LEAST_AGE_MS = 60_000


class ConsumerMetadata:
    """Topics that a consumer uses.

    Attributes:
        damaged: topics whose newest entry it can't read.
        seen: versions at the last poll; another one wakes the consumer.
    """

    def __init__(
        self, root: SharedRoot, own_root: Root, config: ConsumerConfig, subscriptions: SubscriptionState
    ) -> None:
        self._root, self._own_root, self._config, self._subscriptions = root, own_root, config, subscriptions
        self._clock = root.storage.clock
        self._topics: dict[str, SharedTopic] = {}
        self._listed: tuple[float, tuple[str, ...]] | None = None
        self._allowed = self._clock.monotonic()
        self.views: dict[str, View] = {}
        self.damaged: dict[str, CorruptionError] = {}
        self.seen: dict[SharedTopic, str] = {}
        self._schemas: Schemas = {}
        self._began: dict[str, tuple[str, TopicSchema | None]] = {}  # topic id, schema
        self._subscribed: object = None
        self._named: tuple[tuple[str, ...], Schemas, NamedColumns] | None = None
        self._records: RecordColumns | None = None

    def topic(self, name: str) -> SharedTopic:
        """Topic as the process shares it; the first use checks access."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = self._root.topic(name, self._own_root.topic(name).storage)
            topic.shorten_idle_interval(self._config.idle_poll_interval_ms)
            topic.doubt()
            if len(self._topics) > len(self._subscriptions.assigned) + _MOST_OTHERS:
                self._let_go(_MOST_OTHERS)
        return topic

    def look(self, topic: str, *, certain: bool = True) -> View:
        """Return a topic's view; see `SharedTopic.look`."""
        return self.topic(topic).look(certain=certain)

    def live(self, topic: str) -> TopicState | None:
        """Return a topic's state; None if deleted or unreadable."""
        try:
            return self.look(topic).topic
        except (UnknownTopicError, CorruptionError):
            return None

    def states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, TopicState]:
        """State of each partition's topic."""
        states = {}
        for key in check_places(partitions):
            states[key] = self.look(key.topic).topic
            check_partition(key.topic, states[key], key.partition)
        return states

    def offset_for_time(self, key: TopicPartition, at_ms: int) -> OffsetAndTimestamp | None:
        """Return a partition's first record not before a timestamp, or None."""
        topic = self._own_root.topic(key.topic)
        _, state = topic.newest()
        check_partition(key.topic, state, key.partition)
        return find_time(topic, state.topic_id, key.partition, at_ms)

    def schemas(self, views: Mapping[str, View] | None = None) -> Schemas:
        """Schemas of assigned topics, of all subscribed ones if some are typed; without `views` those seen last."""
        subscription = self._subscriptions.subscription
        wanted = {*self._subscriptions.names(), *((subscription and subscription.names) or ())}
        if subscription is not self._subscribed:
            self._subscribed, self._schemas, self._began = subscription, {}, {}
        known = {**self._schemas, **{name: self._began_with(name, view.topic) for name, view in (views or {}).items()}}
        known = {name: schema for name, schema in known.items() if name in wanted}
        for name in sorted(wanted - known.keys()) if views is not None else ():
            if known and all(schema is None for schema in known.values()):
                break
            with suppress(CommitLogError):  # a read of the topic raises it again
                known[name] = self._began_with(name, self.look(name, certain=False).topic)
        self._schemas = known
        self._began = {name: begun for name, begun in self._began.items() if name in known}
        return known

    def _began_with(self, name: str, state: TopicState) -> TopicSchema | None:
        """Return the schema with which this consumer began to read a topic under its subscription."""
        begun = self._began.get(name)
        if begun is None or begun[0] != state.topic_id:
            begun = self._began[name] = state.topic_id, state.schema
        return begun[1]

    def name_columns(self, columns: tuple[str, ...], schemas: Schemas) -> NamedColumns:
        """Return the named columns of the topics, the same again while nothing changes."""
        if self._named is None or self._named[:2] != (columns, schemas):
            self._named = columns, schemas, name_columns(columns, schemas)
        return self._named[2]

    def record_columns(self, schemas: Schemas) -> RecordColumns:
        """Return the columns of the topics' records, the same again while nothing changes."""
        if self._records is None or self._records.schemas != schemas:
            self._records = RecordColumns(schemas)
        return self._records

    def versions(self, views: Mapping[str, View]) -> dict[SharedTopic, str]:
        """Seen version of every assigned topic."""
        names = self._subscriptions.names()
        return {self.topic(n): views[n].newest.write_id if n in views else self.topic(n).version for n in names}

    def counts(self) -> dict[str, int]:
        """Return subscribed topics with partition counts, if unreadable the last.

        Raises:
            UnknownTopicError: a topic subscribed by name never existed.
        """
        subscription = self._subscriptions.subscription
        assert subscription is not None
        counts: dict[str, int] = {}
        for name in subscription.names or self._matching(subscription.pattern):
            try:
                self.views[name] = self.look(name, certain=False)
                counts[name] = self.views[name].topic.partitions
            except CorruptionError as error:
                self.damaged[name] = error
                if before := self._subscriptions.count(name):
                    counts[name] = before
            except UnknownTopicError:
                if subscription.pattern is not None:
                    continue
                if not (before := self._subscriptions.count(name)):
                    raise
                counts[name] = before  # deleted: it may be recreated
        if self._subscriptions.begun is None:
            self._subscriptions.begun = dict.fromkeys(self.damaged, MAX_PARTITIONS) | counts
        return counts

    def _matching(self, pattern: re.Pattern[str] | None) -> tuple[str, ...]:
        assert pattern is not None
        now = self._clock.monotonic()
        if self._listed is None or (now - self._listed[0]) * 1000 >= self._age_ms:
            names = (name for name in self._own_root.listed() if pattern.fullmatch(name) and is_topic_name(name))
            self._listed = now, tuple(names)
        return self._listed[1]

    @property
    def _age_ms(self) -> int:
        least = 0 if self._root.storage.can_append else _LEAST_AGE_MS
        return max(self._config.metadata_max_age_ms, least)

    def check_damaged(self, *topics: str) -> None:
        """Raise the error of a damaged topic, by default of any."""
        for name in topics or self.damaged:
            if name in self.damaged:
                raise self.damaged[name]

    def check_access(self) -> None:
        """Check at intervals whether the principal may still read; if not, raise at each poll."""
        now = self._clock.monotonic()
        if (now - self._allowed) * 1000 >= self._age_ms:
            names = self._subscriptions.names()
            if names:
                self._own_root.access.check(Operation.READ, *sorted(names))
            self._allowed = now

    # --- eviction ----------------------------------------------------------------------------------------

    def list_again(self) -> None:
        """List a pattern's topics at the next look."""
        self._listed = None

    def begin_looks(self) -> None:
        """Drop the views of the last poll."""
        self.views.clear()
        self.damaged.clear()

    def forget_looks(self) -> None:
        """Drop views and versions."""
        self.begin_looks()
        self.seen = {}

    def let_go_of_others(self) -> None:
        """Drop unassigned topics but the last few."""
        self._let_go(_OTHERS)

    def bound_others(self) -> None:
        """Drop unassigned topics, if they have become many."""
        if len(self._topics) > len(self._subscriptions.names()) + _OTHERS:
            self._let_go(_OTHERS)

    def _let_go(self, most: int) -> None:
        assigned = self._subscriptions.names()
        others = [name for name in self._topics if name not in assigned]
        for name in others[: max(0, len(others) - most)]:
            del self._topics[name]

    def end(self) -> None:
        """Drop all topics and their frames."""
        self._topics.clear()
        self.forget_looks()
