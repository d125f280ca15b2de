"""What a journal asks of storage where each look is a request, and what it never takes on trust all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from pyspark_commitlog.config import MIN_DELAY_MS
from pyspark_commitlog.errors import OutcomeUnknownError, ReplicaNotAvailableError, StorageError, TopicChangedError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.journal import Draft, Journal, Slot, Stored, Unchanged, no_sides
from pyspark_commitlog.journal.anchor import TICK_MS
from pyspark_commitlog.testing.faults import FaultyStorage, Hook, io_error, on_path
from pyspark_commitlog.testing.manual_clock import ManualClock
from tests.support.counted import CountedStorage
from tests.support.entries import rewrite
from tests.support.world import once, raising

_FRESH_MS = MIN_DELAY_MS // 2
#: How often a put is tried whose outcome is not known.
TRIES = 8


class SleepyClock(ManualClock):
    """A clock whose monotonic side stands still while the machine sleeps."""

    slept = 0.0

    def monotonic(self) -> float:
        """Return seconds awake."""
        return super().monotonic() - self.slept

    def sleep_through(self, ms: int) -> None:
        """Let the machine sleep."""
        self.advance(ms)
        self.slept += ms / 1000


@dataclass
class Bucket:
    """A journal directory that several processes use: `journal` is one more of them."""

    path: Path
    exact: bool = False
    clock: SleepyClock = field(default_factory=SleepyClock)

    def storage(self) -> CountedStorage:
        storage = CountedStorage(self.path, clock=self.clock, exact=self.exact)
        storage.make_directory("j")
        return storage

    def journal(self, storage: CountedStorage | None = None, hook: Hook | None = None) -> Journal:
        inner = storage or self.storage()
        door = inner if hook is None else FaultyStorage(inner, hook)  # type: ignore[abstract]
        return Journal(door, "j", "topic", no_sides, _any)

    def file(self, sequence: int) -> Path:
        return self.path / "j" / paths.entry_name(sequence)

    def numbers(self) -> list[int]:
        return self.journal().sequences()

    def values(self) -> list[str]:
        """Return what is in the chain, from the newest entry down, as far as it is kept; ascending."""
        journal = self.journal()
        link, values = journal.newest(), list[str]()
        while link is not None:
            values.append(link.entry.body["value"])
            try:
                below = journal.read(link.sequence - 1)
            except FileNotFoundError:
                break
            link = below if below.entry.write_id == link.entry.prev else None
        return values[::-1]

    def collect(self) -> None:
        """Delete all entries whose next one is older than the delay, but for the newest two."""
        journal = self.journal()
        numbers = journal.sequences()
        for sequence, following in pairwise(numbers[:-1]):
            if journal.read(following).info.modified_ms + MIN_DELAY_MS + TICK_MS > self.clock.now_ms():
                break
            journal.delete(sequence)

    def live(self, puts: int = 4, *, collected: bool = True) -> None:
        """Let others put entries, and have old ones collected."""
        other = self.journal()
        for number in range(puts):
            put(other, f"other {number}")
        if collected:
            self.clock.advance(MIN_DELAY_MS + TICK_MS)
            for number in range(2):
                put(other, f"later {number}")
            self.collect()


def _any(body: Json, path: str) -> None:
    """Take every entry."""


def put(journal: Journal, value: str) -> Stored | None:
    """Append one entry."""
    return journal.append(lambda base, slot: Draft("t", "", {"value": value}, result=None)).stored


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path / "root")


@pytest.fixture(params=["s3", "gcs"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    return Bucket(tmp_path / "root", exact=request.param == "gcs")


# --- what is spent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("apart_ms", [100, 1000, 4999])
def test_appends_that_follow_each_other_are_a_put_each(either: Bucket, apart_ms: int) -> None:
    """Goal: a small commit is one PUT and at most one HEAD; one a minute, for a time, where it is not needed."""
    put(either.journal(), "first")
    storage = either.storage()
    journal = either.journal(storage)
    put(journal, "second")
    first = storage.spent()
    assert first == {"PUT": 1, "GET": 1, "LIST": 1} | ({} if either.exact else {"HEAD": 1})
    heads = 0
    for number in range(200):
        either.clock.advance(apart_ms)
        put(journal, str(number))
        spent = storage.spent()
        heads += spent.pop("HEAD", 0)
        assert spent == {"PUT": 1}
    assert heads <= 1 + 200 * apart_ms // 60_000
    assert len(either.values()) == 202


def test_who_lists_a_busy_journal_does_not_wait_until_nothing_is_put(either: Bucket) -> None:
    """A listing and a read: others put entries in less time than these take."""
    put(either.journal(), "first")
    listings = list[str]()

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("names", "after"):
            listings.append(path)
            assert len(listings) < 5, "it lists again for each entry that is put"
            either.live(1, collected=False)

    found = either.journal(hook=hook).newest()
    assert found is not None
    assert len(listings) == 1
    assert found.sequence == 1, "the newest when it was listed"


@pytest.mark.parametrize("asleep", [False, True])
def test_what_was_listed_a_while_ago_is_not_believed(either: Bucket, asleep: bool) -> None:
    """The process stops, or its machine sleeps, between listing and read: its number is collected, and put again."""
    put(either.journal(), "first")
    put(either.journal(), "second")
    zombie, others = either.file(2).read_bytes(), list[bool]()

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("fetch", "before") and path.endswith(either.file(2).name) and not others:
            others.append(True)
            before = either.clock.now_ms()
            either.live()
            if asleep:
                either.clock.slept += (either.clock.now_ms() - before) / 1000
            assert not either.file(2).exists()
            either.storage().put_if_absent(f"j/{either.file(2).name}", zombie)

    found = either.journal(hook=hook).newest()
    assert others
    assert found is not None
    assert found.entry.body["value"] == "later 1"


@pytest.mark.parametrize("apart_ms", [5000, 60_000, 890_000])
def test_appends_far_apart_are_a_put_and_a_look_at_the_anchor(either: Bucket, apart_ms: int) -> None:
    put(either.journal(), "first")
    storage = either.storage()
    journal = either.journal(storage)
    put(journal, "second")
    for number in range(20):
        storage.spent()
        either.clock.advance(apart_ms)
        put(journal, str(number))
        assert storage.spent() == {"PUT": 1, "HEAD": 1}
    assert journal.listings == 1


def test_appends_an_hour_apart_cost_one_look_more(bucket: Bucket) -> None:
    """What is known of storage's clock grows too old: its own file is looked at once, but nothing is listed."""
    storage = bucket.storage()
    journal = bucket.journal(storage)
    put(journal, "first")
    put(journal, "second")
    for number in range(3):
        bucket.clock.advance(3_600_000)
        storage.spent()
        put(journal, str(number))
        assert storage.spent() == {"PUT": 1, "HEAD": 2}


def test_an_idle_poll_is_one_request(either: Bucket) -> None:
    """Goal: an idle poll is one request; after a while without one, two."""
    put(either.journal(), "first")
    storage = either.storage()
    poller = either.journal(storage)
    assert poller.newest() is not None
    for _ in range(50):
        storage.spent()
        either.clock.advance(_FRESH_MS - 1)
        poller.newest()
        assert storage.spent() == {"GET": 1}
    either.clock.advance(_FRESH_MS)
    poller.newest()
    assert storage.spent() == {"GET": 1, "HEAD": 1}
    put(either.journal(), "second")
    poller.newest()
    assert storage.spent() == {"GET": 1, "HEAD": 1}, "the next one, and whether another follows it"


def test_what_may_be_noticed_late_costs_nothing(bucket: Bucket) -> None:
    put(bucket.journal(), "first")
    storage = bucket.storage()
    journal = bucket.journal(storage)
    found = journal.newest()
    storage.spent()
    bucket.clock.advance(59_999)
    assert journal.recent(60) is found
    assert storage.spent() == {}
    bucket.clock.advance(1)
    journal.recent(60)
    assert storage.spent() == {"GET": 1, "HEAD": 1}


def test_a_writer_among_others_looks_before_it_puts(bucket: Bucket) -> None:
    """A put that is refused costs twelve times a look."""
    storage = bucket.storage()
    journal = bucket.journal(storage)
    other = bucket.journal()
    put(journal, "mine")
    put(other, "other")
    put(journal, "mine")
    storage.spent()
    put(other, "other")
    put(journal, "mine")
    assert storage.spent()["PUT"] == 1
    put(journal, "mine")
    storage.spent()
    put(journal, "alone again")
    assert storage.spent() == {"PUT": 1}


@pytest.mark.parametrize("appends", [True, False], ids=["a local disk", "NFS"])
def test_nothing_is_spared_where_a_look_costs_nothing(tmp_path: Path, appends: bool) -> None:
    """A client of NFS may have "not there" from its cache: the anchor, which it opens, tells."""

    class Unbilled(CountedStorage):
        can_append = appends  # type: ignore[assignment]
        bills_requests = False

        def put_if_absent(self, path: str, data: bytes) -> None:  # type: ignore[override]
            super().put_if_absent(path, data)

    storage = Unbilled(tmp_path / "root", clock=ManualClock(), exact=True)
    storage.make_directory("j")
    journal = Journal(storage, "j", "topic", no_sides, _any)
    put(journal, "first")
    storage.spent()
    put(journal, "second")
    assert storage.spent() == ({"GET": 1, "PUT": 1, "HEAD": 4} if appends else {"PUT": 1, "HEAD": 3})


# --- plans on what is remembered --------------------------------------------------------------------------


def test_a_plan_that_finds_nothing_to_do_is_asked_again_on_the_newest(bucket: Bucket) -> None:
    """R9: "nothing to do" is about the newest entry, not about one that is remembered."""
    journal = bucket.journal()
    put(journal, "done")
    put(bucket.journal(), "undone")

    def plan(base: Stored | None, slot: Slot) -> Draft[str] | Unchanged[str]:
        assert base is not None
        if base.entry.body["value"] == "done":
            return Unchanged("nothing to do")
        return Draft("t", "", {"value": "done"}, result="did it")

    stored, result = journal.append(plan)
    assert stored is not None
    assert (result, stored.sequence) == ("did it", 3)
    assert journal.append(plan) == (None, "nothing to do")


def test_a_plan_that_refuses_is_asked_again_on_the_newest(bucket: Bucket) -> None:
    journal = bucket.journal()
    put(journal, "closed")
    put(bucket.journal(), "open")
    asked = []

    def plan(base: Stored | None, slot: Slot) -> Draft[None]:
        assert base is not None
        asked.append(base.entry.body["value"])
        if asked[-1] == "closed":
            raise ValueError(asked[-1])
        return Draft("t", "", {"value": "closed"}, result=None)

    assert journal.append(plan).stored is not None
    assert asked == ["closed", "open"]
    asked.clear()
    with pytest.raises(ValueError, match="closed"):
        journal.append(plan)
    assert asked == ["closed"]


# --- the anchor, where looks are spared -------------------------------------------------------------------


def test_an_idle_poller_notices_after_a_while_that_its_entry_is_gone(bucket: Bucket) -> None:
    """Anchor rule: 404 at the next number proves nothing once that may have been collected."""
    put(bucket.journal(), "first")
    poller = bucket.journal()
    poller.newest()
    bucket.live()
    found = poller.newest()
    assert found is not None
    assert found.sequence == bucket.numbers()[-1] == 7


def test_a_poller_that_slept_with_its_machine_looks_again(bucket: Bucket) -> None:
    """The monotonic clock stands still in a machine that sleeps: the other one says that time passed."""
    put(bucket.journal(), "first")
    poller = bucket.journal()
    poller.newest()
    began = bucket.clock.now_ms()
    bucket.live()
    bucket.clock.slept += (bucket.clock.now_ms() - began) / 1000
    found = poller.newest()
    assert found is not None
    assert found.sequence == bucket.numbers()[-1]


def test_a_put_long_after_its_anchor_was_collected_is_put_again_above(either: Bucket) -> None:
    """Anchor rule: an idle writer's put succeeds at a collected number; that is certain, and its write is put once."""
    journal = either.journal()
    put(journal, "mine")
    either.live()
    assert 2 not in either.numbers()
    stored = put(journal, "again")
    assert stored is not None
    assert stored.sequence == 8
    assert either.values().count("again") == 1
    assert 2 in either.numbers(), "the one that did not count"


def test_a_slow_put_whose_anchor_is_gone_is_outcome_unknown(bucket: Bucket) -> None:
    """What was put so long ago may have been collected: then it counted."""
    put(bucket.journal(), "first")
    lagging = bucket.journal(hook=on_path(paths.entry_name(2), "put_if_absent", once(bucket.live), when="after"))
    lagging.newest()
    with pytest.raises(OutcomeUnknownError):
        put(lagging, "lagging")


def test_a_put_whose_file_is_another_ones_does_not_count(bucket: Bucket) -> None:
    """O9: a store that takes two puts of a name, now and then, said that both were done: the other one stands there."""
    put(bucket.journal(), "first")
    rival = Bucket(bucket.path / "rival", clock=bucket.clock)
    for value in ("first", "rival"):
        put(rival.journal(), value)
    data = bytearray(rival.file(2).read_bytes())

    def overwritten() -> None:
        bucket.file(2).write_bytes(data)
        rewrite(bucket.file(2), lambda fields: fields.update(prev=bucket.journal().read(1).entry.write_id))

    hook = on_path(bucket.file(2).name, "put_if_absent", once(overwritten), when="after")
    stored = put(bucket.journal(hook=hook), "mine")
    assert stored is not None
    assert stored.sequence == 3
    assert bucket.values() == ["first", "rival", "mine"]


def copied(bucket: Bucket) -> Journal:
    """Return a journal whose last put, known by its reply alone, was collected and executed once more by a proxy."""
    journal = bucket.journal()
    for value in ("zero", "one", "mine"):
        put(journal, value)
    copy = bucket.file(3).read_bytes()
    bucket.live()
    assert bucket.numbers()[0] > 4
    bucket.storage().put_if_absent(f"j/{paths.entry_name(3)}", copy)
    return journal


def test_an_own_put_is_known_from_a_copy_of_its_request(bucket: Bucket) -> None:
    """O7: same bytes, same ETag; but the copy came after the entry was collected, which its time shows."""
    journal = copied(bucket)
    stored = put(journal, "again")
    assert stored is not None
    assert stored.sequence == bucket.numbers()[-1] > 7
    assert bucket.values()[-1] == "again"


def test_a_reader_of_an_own_entry_knows_a_copy_too(bucket: Bucket) -> None:
    found = copied(bucket).newest()
    assert found is not None
    assert found.sequence == bucket.numbers()[-1]


def test_own_puts_within_a_second_of_storages_clock_are_known_from_each_other(bucket: Bucket) -> None:
    """Times are whole seconds: own entries of one second are told from each other by their number alone."""
    journal = bucket.journal()
    for number in range(5):
        put(journal, str(number))
    bucket.clock.advance(3_600_000)
    assert put(journal, "five") is not None
    assert journal.listings == 1
    assert bucket.values() == ["0", "1", "2", "3", "4", "five"]


def test_what_is_superseded_stays_while_others_may_go_by_it_without_a_look(bucket: Bucket) -> None:
    """Anchor rule: a writer that saw entry 1 a moment ago must not put at number 2 as if nobody had been there."""
    put(bucket.journal(), "old")
    bucket.clock.advance(MIN_DELAY_MS + TICK_MS)
    slow = bucket.journal()
    slow.newest()
    put(bucket.journal(), "damaged")
    bucket.file(2).write_bytes(b"damaged")
    bucket.journal().supersede(lambda slot: Draft("t", "", {"value": "all gone"}, result=None))
    assert bucket.numbers() == [1, 2, 3]
    newest = slow.newest()
    assert newest is not None
    assert newest.entry.body["value"] == "all gone"
    bucket.clock.advance(MIN_DELAY_MS + TICK_MS)
    bucket.journal().supersede(lambda slot: Draft("t", "", {"value": "again"}, result=None))
    assert bucket.numbers() == [3, 4]


# --- outcomes ---------------------------------------------------------------------------------------------


def refused_and_gone(bucket: Bucket, *, ours: bool) -> Hook:
    """Return a hook: a put is told "exists" at its first try, and what existed is collected before it is read back."""
    path = bucket.file(2)

    def hook(operation: str, where: str, moment: str) -> None:
        if operation == "put_if_absent" and moment == "before" and where.endswith(path.name) and not ours:
            intrude()
        if operation == "put_if_absent" and moment == "after" and where.endswith(path.name):
            raise FileExistsError(where)
        if operation == "fetch" and moment == "before" and where.endswith(path.name):
            gone()

    intrude = once(lambda: put(bucket.journal(), "intruder"))
    gone = once(bucket.live)
    return hook


def test_exists_where_nothing_is_found_is_in_doubt_at_the_first_try_too(bucket: Bucket) -> None:
    """O9: the library put again by itself, and got "exists" for its caller's own entry, which is collected by now."""
    put(bucket.journal(), "first")
    with pytest.raises(OutcomeUnknownError):
        put(bucket.journal(hook=refused_and_gone(bucket, ours=True)), "once")
    assert bucket.values().count("once") == 0
    assert 2 not in bucket.numbers()


def test_exists_for_an_own_put_is_a_success(bucket: Bucket) -> None:
    """O9: the same, and it is there."""
    put(bucket.journal(), "first")

    def refuse() -> None:
        raise FileExistsError

    hasty = bucket.journal(hook=on_path("j/", "put_if_absent", refuse, when="after"))
    stored = put(hasty, "once")
    assert stored is not None
    assert stored.sequence == 2
    assert bucket.values() == ["first", "once"]


def test_exists_with_another_entry_proves_nothing_where_the_anchor_is_gone(bucket: Bucket) -> None:
    """O9: what was found is another zombie's, at a number that was ours, and was collected."""
    put(bucket.journal(), "first")
    zombie = bucket.journal()
    zombie.newest()
    strays = Bucket(bucket.path / "strays", clock=bucket.clock)
    put(strays.journal(), "first")
    put(strays.journal(), "stray")

    def collected_and_put_again() -> None:
        bucket.live()
        bucket.file(2).write_bytes(strays.file(2).read_bytes())

    path = bucket.file(2).name

    def hook(operation: str, where: str, moment: str) -> None:
        if operation == "put_if_absent" and moment == "after" and where.endswith(path):
            gone()
            raise FileExistsError(where)

    gone = once(collected_and_put_again)
    with pytest.raises(OutcomeUnknownError):
        put(bucket.journal(hook=hook), "once")
    assert bucket.values().count("once") == 0


def test_exists_with_another_entry_is_a_lost_race_while_the_anchor_stands(bucket: Bucket) -> None:
    journal = bucket.journal()
    put(journal, "first")
    put(bucket.journal(), "other")
    bucket.clock.advance(60_000)
    stored = put(journal, "mine")
    assert stored is not None
    assert bucket.values() == ["first", "other", "mine"]


# --- write ids, and operations that may be planned again --------------------------------------------------


def test_every_draft_has_a_write_id_of_its_own(bucket: Bucket) -> None:
    """O2: two drafts under one id are two histories under one name."""
    journal = bucket.journal()
    put(journal, "first")
    put(bucket.journal(), "other")
    slots: list[Slot] = []

    def plan(base: Stored | None, slot: Slot) -> Draft[None]:
        slots.append(slot)
        return Draft("t", "", {"value": "mine"}, result=None)

    stored = journal.append(plan).stored
    assert stored is not None
    assert [slot.sequence for slot in slots] == [2, 3]
    assert slots[0].write_id != slots[1].write_id == stored.entry.write_id


def test_the_same_bytes_keep_their_write_id(bucket: Bucket) -> None:
    sent: list[bytes] = []

    class Recording(CountedStorage):
        def put_if_absent(self, path: str, data: bytes) -> object:  # type: ignore[override]
            sent.append(data)
            if len(sent) == 1:
                raise io_error()
            return super().put_if_absent(path, data)

    storage = Recording(bucket.path, clock=bucket.clock)
    storage.make_directory("j")
    put(bucket.journal(storage), "once")
    assert len(sent) == 2
    assert sent[0] == sent[1]


def counting(value: str) -> Callable[[Stored | None, Slot], Draft[str] | Unchanged[str]]:
    """Return a plan with a precondition of its own: it puts where the newest entry has not the value yet."""

    def plan(base: Stored | None, slot: Slot) -> Draft[str] | Unchanged[str]:
        if base is not None and value in base.entry.body["value"]:
            return Unchanged("is there")
        return Draft("t", "", {"value": f"{'' if base is None else base.entry.body['value']} {value}"}, result="put")

    return plan


@pytest.mark.parametrize("done", ["before", "after"])
@pytest.mark.parametrize("seconds", [1, 8])
def test_a_put_outlives_a_store_that_is_busy_for_seconds(either: Bucket, done: str, seconds: int) -> None:
    """As every other request does: a query would end after its whole batch was staged."""
    put(either.journal(), "first")
    over = either.clock.monotonic() + seconds

    def busy(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and moment == done and either.clock.monotonic() < over:
            raise StorageError("503 Slow Down")

    stored = put(either.journal(hook=busy), "second")
    assert stored is not None
    assert either.values() == ["first", "second"]


def test_a_journal_that_others_can_do_without_is_not_waited_for(bucket: Bucket) -> None:
    """As of one of three roots that decide: with two of them a commit goes on."""
    put(bucket.journal(), "first")
    hook = on_path("j/", "put_if_absent", raising(StorageError("503 Slow Down")), times=99)
    journal, began = bucket.journal(hook=hook), bucket.clock.monotonic()
    journal.is_patient = False
    with pytest.raises(OutcomeUnknownError, match="5 tries failed"):
        put(journal, "second")
    assert bucket.clock.monotonic() - began < 1


def test_a_store_that_stays_busy_is_asked_a_few_times_and_one_that_hangs_fewer(bucket: Bucket) -> None:
    put(bucket.journal(), "first")
    for answers_after, times, most in (0, TRIES, 20), (60, 2, 130):
        puts, began = 0, bucket.clock.monotonic()

        def busy(operation: str, path: str, moment: str, after: float = answers_after) -> None:
            nonlocal puts
            if operation == "put_if_absent" and moment == "before":
                puts += 1
                bucket.clock.sleep(after)
                raise StorageError("no answer")

        with pytest.raises(OutcomeUnknownError, match=f"{times} tries failed"):
            put(bucket.journal(hook=busy), "second")
        assert puts == times
        assert bucket.clock.monotonic() - began < most


def test_a_root_that_hangs_is_not_waited_for_between_the_tries_of_a_put(bucket: Bucket) -> None:
    """Each of them took its limit, or found that another call has."""
    put(bucket.journal(), "first")
    hook, began = (
        on_path("j/", "put_if_absent", raising(ReplicaNotAvailableError("hangs")), times=99),
        bucket.clock.monotonic(),
    )
    with pytest.raises(OutcomeUnknownError, match="5 tries failed"):
        put(bucket.journal(hook=hook), "second")
    assert bucket.clock.monotonic() - began < 1


@pytest.mark.parametrize("landed", [False, True])
def test_a_late_try_at_a_number_that_was_collected_meanwhile_counts_no_second_time(
    either: Bucket, landed: bool
) -> None:
    """The tries take longer than the delay after which entries go, and what was seen before them holds."""
    put(either.journal(), "first")
    tries = 0

    def busy(operation: str, path: str, moment: str) -> None:
        nonlocal tries
        if operation != "put_if_absent" or moment != ("after" if landed and not tries else "before"):
            return
        tries += 1
        if tries == 5:
            either.live()
        if tries < 6:
            raise StorageError("503 Slow Down")

    with pytest.raises(OutcomeUnknownError, match="are collected already"):
        put(either.journal(hook=busy), "second")
    assert tries == 6
    assert either.numbers()[0] == 2, "the late try was taken, and nobody goes by it"
    assert either.numbers()[1] > 3
    assert "second" not in either.values()


def losing(first: str) -> Hook:
    """Return a hook that loses the replies to all tries of a put: the first `before` it is done, or `after` that."""
    puts = 0

    def hook(operation: str, path: str, moment: str) -> None:
        nonlocal puts
        if operation != "put_if_absent":
            return
        puts += moment == "before"
        if puts <= TRIES and moment == (first if puts == 1 else "before"):
            raise io_error()

    return hook


@pytest.mark.parametrize("first", ["before", "after"])
def test_what_carries_its_own_precondition_is_planned_again_after_doubt(bucket: Bucket, first: str) -> None:
    """O2, O9: all replies are lost: the newest entry shows whether it landed."""
    put(bucket.journal(), "first")
    stored, result = bucket.journal(hook=losing(first)).append(counting("once"), repeatable=True)
    assert (stored is None, result) == ((False, "put") if first == "before" else (True, "is there"))
    assert bucket.values() == ["first", "first once"]


def test_without_a_precondition_of_its_own_the_same_is_outcome_unknown(bucket: Bucket) -> None:
    put(bucket.journal(), "first")
    with pytest.raises(OutcomeUnknownError):
        put(bucket.journal(hook=losing("after")), "once")
    assert bucket.values() == ["first", "once"]


def test_what_is_planned_again_lands_once_though_its_first_draft_is_late(bucket: Bucket) -> None:
    """Hole 2: both drafts go to one number, each under its own id, so the entry above names the one that counts."""
    put(bucket.journal(), "first")
    sent: list[tuple[str, bytes]] = []

    class Late(CountedStorage):
        def put_if_absent(self, path: str, data: bytes) -> object:  # type: ignore[override]
            if len(sent) < TRIES:
                sent.append((path, data))
                raise io_error()
            return super().put_if_absent(path, data)

    late = Late(bucket.path, clock=bucket.clock)
    stored, _ = bucket.journal(late).append(counting("once"), repeatable=True)
    assert stored is not None
    bucket.live()
    bucket.storage().put_if_absent(*sent[0])  # the first draft, as a ghost
    ghost = bucket.journal().read(2).entry
    assert ghost.write_id != stored.entry.write_id
    assert sum("once" in value for value in bucket.values()) == 0
    assert bucket.numbers()[0] == 2


def test_doubt_without_end_is_outcome_unknown(bucket: Bucket) -> None:
    put(bucket.journal(), "first")
    hook = on_path("j/", "put_if_absent", raising(io_error()), times=999)
    with pytest.raises(OutcomeUnknownError):
        bucket.journal(hook=hook).append(counting("never"), repeatable=True)


def test_a_failure_behind_doubt_is_not_told_as_not_put(bucket: Bucket) -> None:
    """The first put may have landed: "certainly not put" would be a lie."""
    put(bucket.journal(), "first")
    lose, puts = losing("after"), 0

    def hook(operation: str, path: str, moment: str) -> None:
        nonlocal puts
        puts += operation == "put_if_absent" and moment == "before"
        lose(operation, path, moment)
        if puts and operation == "names":
            raise StorageError("injected: nothing can be listed")

    with pytest.raises(OutcomeUnknownError):
        bucket.journal(hook=hook).append(counting("once"), repeatable=True)
    assert bucket.values() == ["first", "first once"]


def test_a_precondition_that_is_gone_is_told_as_it_is(bucket: Bucket) -> None:
    def plan(base: Stored | None, slot: Slot) -> Draft[None]:
        raise TopicChangedError("gone")

    with pytest.raises(TopicChangedError):
        bucket.journal().append(plan, repeatable=True)


# --- trimming ---------------------------------------------------------------------------------------------


def test_trimming_keeps_what_no_entry_of_the_delays_age_follows(bucket: Bucket) -> None:
    """O7: entries that are put fast stay for the delay: their numbers must not be put again while others remember."""
    journal = bucket.journal()
    for number in range(16):
        put(journal, str(number))
        journal.trim()
    assert bucket.numbers() == list(range(1, 17))
    bucket.clock.advance(MIN_DELAY_MS + TICK_MS)
    for number in range(16):
        put(journal, str(number))
        journal.trim()
    assert bucket.numbers() == list(range(16, 33))


def test_trimming_lists_now_and_then(bucket: Bucket) -> None:
    storage = bucket.storage()
    journal = bucket.journal(storage)
    put(journal, "first")
    storage.spent()
    for number in range(160):
        bucket.clock.advance(3000)
        put(journal, str(number))
        journal.trim()
    spent = storage.spent()
    assert spent["PUT"] == 160
    assert spent["LIST"] <= 20
    assert spent["HEAD"] <= 80
    assert len(bucket.numbers()) <= 24
