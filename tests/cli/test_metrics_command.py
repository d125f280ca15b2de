"""`commitlog metrics`: what a scrape gives, what it costs, and what it survives."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPResponse
from pathlib import Path
from threading import Event, Thread
from typing import cast
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as classic_families

from pyspark_commitlog import CommitLog, Consumer, Producer
from pyspark_commitlog.cli.common.metric_samples import METRICS, Sample
from pyspark_commitlog.cli.common.scrape_server import MOST_SCRAPES, OPEN_METRICS, Exposition, ScrapeServer, SharedCall
from pyspark_commitlog.cli.exporter import RootCollector
from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.manual_clock import ManualClock
from tests.support.commands import COMMAND, REPOSITORY, run
from tests.support.counted import CountedStorage
from tests.support.records import append, batch_of

Values = dict[tuple[str, ...], float]


def get(url: str, accept: str = OPEN_METRICS) -> tuple[str, str]:
    """Return the content type of an answer, and its text."""
    with cast(HTTPResponse, urlopen(Request(url, headers={"Accept": accept}), timeout=60)) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def parsed(text: str) -> Values:
    """Return the value of each sample of an OpenMetrics text, by metric and labels in the order of the reference."""
    families = list(text_string_to_metric_families(text))
    assert {each.name for each in families} <= METRICS.keys()
    assert all(each.documentation == METRICS[each.name].help for each in families)
    samples = [sample for family in families for sample in family.samples]
    found = {(each.name, *(each.labels[label] for label in METRICS[each.name].labels)): each.value for each in samples}
    assert len(found) == len(samples)
    return found


@contextmanager
def serving(root: str, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve the metrics of a root in a process; yield their URL."""
    command = [*COMMAND, "metrics", root, "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith(f"serving the metrics of {root} at http://127.0.0.1:"), line
            yield line.split()[-1], process
        finally:
            process.kill()


def test_a_scrape_has_the_offsets_and_lags_of_producers_and_consumers(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    log = CommitLog(root)
    log.create_topic("flights", 2)
    with Producer(root) as producer:
        sent = [producer.send("flights", f"{number}", partition=number % 2) for number in range(10)]
        ends = {each.partition: each.offset + 1 for each in (future.result() for future in sent)}
    assert ends == {0: 5, 1: 5}
    with serving(root, "--lag-seconds") as (url, process):
        content_type, text = get(url)
        assert content_type.startswith("application/openmetrics-text; version=1.0.0")
        assert text.endswith("# EOF\n")
        before = parsed(text)
        assert before["commitlog_up",] == 1
        assert before["kafka_topic_partitions", "flights"] == 2
        assert not any(name.startswith("kafka_consumergroup") for name, *_ in before)
        for partition, end in ends.items():
            place = ("flights", f"{partition}")
            assert before["kafka_topic_partition_current_offset", *place] == end
            assert before["commitlog_topic_partition_log_end_offset", *place] == end
            assert before["kafka_topic_partition_oldest_offset", *place] == 0
            assert before["commitlog_topic_partition_unsettled_records", *place] == end
        with Consumer(
            root, "flights", group_id="billing", auto_offset_reset="earliest", max_poll_records=4
        ) as consumer:
            consumer.poll(30)
            consumer.commit()
            during = parsed(get(url)[1])
            assert during["kafka_consumergroup_members", "billing"] == 1
            offsets = {each.partition: each.offset for each in log.groups.describe("billing").partitions}
            assert sum(offset or 0 for offset in offsets.values()) == 4
            for partition, offset in offsets.items():
                place = ("billing", "flights", f"{partition}")
                assert during["kafka_consumergroup_current_offset", *place] == (-1 if offset is None else offset)
                assert during["kafka_consumergroup_lag", *place] == (-1 if offset is None else ends[partition] - offset)
                if offset is not None and offset < ends[partition]:
                    assert 0 < during["commitlog_consumergroup_lag_seconds", *place] < 300
            assert during["kafka_consumergroup_current_offset_sum", "billing", "flights"] == 4
            while sum(1 for _ in consumer.poll(1)):
                pass
        after = parsed(get(url)[1])
        assert after["kafka_consumergroup_members", "billing"] == 0
        assert after["kafka_consumergroup_lag_sum", "billing", "flights"] == 0
        assert after["commitlog_consumergroup_lag_seconds", "billing", "flights", "0"] == 0
        log.topic("flights").maintain()
        settled = parsed(get(url)[1])
        assert settled["commitlog_topic_partition_unsettled_records", "flights", "0"] == 0
        assert settled["commitlog_topic_partition_segment_bytes", "flights", "0"] > 0
        assert settled["commitlog_topic_since_maintenance_seconds", "flights"] < 300
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_other_formats_and_paths(tmp_path: Path) -> None:
    root = str(tmp_path)
    CommitLog(root).create_topic("clicks")
    with serving(root) as (url, _):
        content_type, text = get(url, "*/*")
        assert content_type.startswith("text/plain; version=")
        assert {each.name for each in classic_families(text)} == {name for name, *_ in parsed(get(url)[1])}
        assert "/metrics" in get(url.removesuffix("metrics"))[1]
        with pytest.raises(HTTPError, match="404"):
            get(f"{url}/other")


def test_a_topic_that_can_not_be_described_is_counted_and_stops_no_other(tmp_path: Path) -> None:
    root = str(tmp_path)
    log = CommitLog(root)
    for name in ("bad", "gone", "good"):
        log.create_topic(name)
    log.groups.commit("reports", {"good": {0: 0}})
    log.topic("gone").delete()
    (tmp_path / "topics" / "not a topic").mkdir()
    assert parsed("\n".join([*run("metrics", root, "--once")[0], ""]))["commitlog_failed_topics",] == 0
    (entry,) = (tmp_path / "topics" / "bad" / "journal").iterdir()
    entry.write_bytes(b"{")
    lines, errors = run("metrics", root, "--once", code=1)
    found = parsed("\n".join([*lines, ""]))
    assert {name for name, *labels in found if "good" in labels} > {"kafka_topic_partitions", "kafka_consumergroup_lag"}
    assert not any({"bad", "gone", "not a topic"}.intersection(labels) for _, *labels in found)
    assert (found["commitlog_up",], found["commitlog_failed_topics",], found["commitlog_failed_groups",]) == (1, 1, 0)
    assert errors.startswith("topic bad: error: ")
    assert errors.count("\n") == 1


def test_a_failure_is_reported_once_while_it_lasts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("clicks")
    collector = RootCollector(log, lag_seconds=False)
    (tmp_path / "root").rename(tmp_path / "away")
    for _ in range(2):
        assert {each.metric: each.value for each in collector.collect()}["commitlog_up"] == 0
    assert capsys.readouterr().err.count("error: ") == 1
    (tmp_path / "away").rename(tmp_path / "root")
    assert {each.metric: each.value for each in collector.collect()}["commitlog_up"] == 1
    assert collector.failed == {}
    (tmp_path / "root").rename(tmp_path / "away")
    collector.collect()
    assert capsys.readouterr().err.count("error: ") == 1


def test_a_thousand_partitions_cost_no_more_requests_than_describing_them(tmp_path: Path) -> None:
    clock = ManualClock()
    storage = CountedStorage(tmp_path / "root", clock=clock)
    log = CommitLog.on(storage)
    spent = {}
    for partitions in (1, 1000):
        name = f"t{partitions}"
        log.create_topic(name, partitions, {"retention.ms": -1})
        append(log.root.topic(name), batch_of([b"x"] * partitions, partition=range(partitions)))
        log.topic(name).maintain()
        log.groups.commit(f"g{partitions}", {name: dict.fromkeys(range(partitions), 0)})
        clock.advance(60_000)
        storage.spent()
        log.topic(name).describe()
        log.groups.describe(f"g{partitions}")
        spent[partitions] = sum(storage.spent().values())
    assert abs(spent[1000] - spent[1]) <= 2

    storage.spent()
    samples = RootCollector(log, lag_seconds=False).collect()
    scrape = sum(storage.spent().values())
    assert sum(each.metric == "kafka_consumergroup_lag" for each in samples) == 1001
    assert scrape <= sum(spent.values()) + 20  # the root, its access rules, listings, and whether a group is live
    assert len(parsed(Exposition(samples).encode(OPEN_METRICS)[0].decode())) == len(samples) > 12_000


def test_roots_that_belong_together(tmp_path: Path) -> None:
    roots = [str(tmp_path / name) for name in ("a", "b")]
    CommitLog.create(roots).create_topic("clicks")
    found = parsed("\n".join([*run("metrics", ",".join(roots), "--once")[0], ""]))
    assert found["kafka_topic_partition_replicas", "clicks", "0"] == 2
    assert found["kafka_topic_partition_in_sync_replica", "clicks", "0"] == 2
    assert found["kafka_topic_partition_under_replicated_partition", "clicks", "0"] == 0
    assert found["commitlog_topic_leader_up", "clicks"] == 1
    for root in roots:
        assert found["commitlog_replica_up", "clicks", root] == found["commitlog_replica_in_sync", "clicks", root] == 1


def test_the_lag_in_seconds_is_the_age_of_the_first_record_that_is_left(tmp_path: Path) -> None:
    clock = ManualClock()
    log = CommitLog.on(LocalStorage(tmp_path, clock=clock))
    topic = log.create_topic("clicks", config={"inline.max.bytes": 0, "retention.ms": -1})
    for _ in range(5):
        append(log.root.topic("clicks"), batch_of([b"x"], timestamp=[clock.now_ms() * 1000]))
        clock.advance(10_000)
    log.groups.commit("reports", {"clicks": {0: 0}})

    def lags() -> list[float]:
        samples = RootCollector(log, lag_seconds=True).collect()
        return [each.value for each in samples if each.metric == "commitlog_consumergroup_lag_seconds"]

    assert lags() == [50]
    topic.delete_records({0: 3})
    assert lags() == [20]
    for chunk in tmp_path.rglob("staged/*"):
        chunk.unlink()
    assert lags() == []
    log.groups.commit("reports", {"clicks": {0: 5}})
    assert lags() == [0]
    assert not any("lag_seconds" in each.metric for each in RootCollector(log, lag_seconds=False).collect())


# --- the server ---------------------------------------------------------------------------------------------


@contextmanager
def served(server: ScrapeServer) -> Iterator[str]:
    stop = Event()
    thread = Thread(target=server.serve_until, args=(stop,))
    thread.start()
    try:
        yield server.url
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


def first_answer(url: str) -> str:
    """Return the text of the first scrape that is not refused."""
    for _ in range(500):
        with suppress(URLError, ConnectionError):
            return get(url)[1]
        time.sleep(0.02)
    pytest.fail("the server refuses everything")


def test_scrapes_at_the_same_time_share_a_collection_and_more_than_eight_are_refused() -> None:
    begun, go_on, collections = Event(), Event(), list[int]()

    def collect() -> bytes:
        collections.append(1)
        begun.set()
        assert go_on.wait(30)
        return b"%d" % len(collections)

    shared, waiting = SharedCall(collect), list[int]()

    def answer(accept: str) -> tuple[bytes, str]:
        waiting.append(1)
        return shared(), accept

    with served(ScrapeServer("127.0.0.1", 0, answer)) as url, ThreadPoolExecutor(MOST_SCRAPES) as clients:
        scrapes = [clients.submit(get, url, "text/x") for _ in range(MOST_SCRAPES)]
        assert begun.wait(60)
        while len(waiting) < MOST_SCRAPES:
            assert not any(each.done() for each in scrapes)
            time.sleep(0.01)
        with pytest.raises((URLError, ConnectionError)) as refused:
            get(url)
        assert not isinstance(refused.value, HTTPError) or refused.value.code == 503
        go_on.set()
        assert {each.result() for each in scrapes} == {("text/x", "1")}
        assert first_answer(url) == "2"
    assert len(collections) == 2


def test_a_client_that_is_silent_keeps_no_other_from_an_answer() -> None:
    server = ScrapeServer("127.0.0.1", 0, lambda accept: (b"text", accept))
    with served(server) as url, socket.create_connection(("127.0.0.1", server.server_port)) as silent:
        silent.sendall(b"GET /metr")
        assert get(url)[1] == "text"


def test_what_fails_in_a_scrape_is_an_answer() -> None:
    def answer(accept: str) -> tuple[bytes, str]:
        raise ValueError(accept)

    with served(ScrapeServer("127.0.0.1", 0, answer)) as url:
        for _ in range(2):
            with pytest.raises(HTTPError, match="500"):
                get(url)


def test_an_error_of_a_shared_call_is_that_of_all_and_the_next_begins_again() -> None:
    answers: list[object] = [CommitLogError("first"), "second"]

    def act() -> object:
        answer = answers.pop(0)
        if isinstance(answer, CommitLogError):
            raise answer
        return answer

    shared = SharedCall(act)
    with pytest.raises(CommitLogError, match="first"):
        shared()
    assert shared() == "second"


def test_an_address_that_is_taken_or_wrong_ends_with_2(tmp_path: Path) -> None:
    CommitLog(str(tmp_path)).create_topic("clicks")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert (
            f"--listen {address}: Address already in use"
            in run("metrics", str(tmp_path), "--listen", address, code=2)[1]
        )
    assert "use ADDRESS:PORT" in run("metrics", str(tmp_path), "--listen", "9308", code=2)[1]
    assert "there is no commit log at" in run("metrics", str(tmp_path / "none"), code=1)[1]


def test_without_the_package_the_command_says_how_to_get_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['prometheus_client'] = None; from pyspark_commitlog.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "metrics", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pip install 'pyspark-commitlog[cli,metrics]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_samples_of_a_metric_stand_together() -> None:
    samples = [
        Sample("commitlog_up", (), 1),
        Sample("kafka_topic_partitions", ("b",), 2),
        Sample("commitlog_failed_topics", (), 0),
    ]
    text = Exposition([*samples, Sample("kafka_topic_partitions", ('a"\\\n',), 3)]).encode(OPEN_METRICS)[0].decode()
    assert text.count("# TYPE") == 3
    assert parsed(text)["kafka_topic_partitions", 'a"\\\n'] == 3
