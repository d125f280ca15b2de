"""The example jobs, run as their users do: through spark-submit with the configuration in spark-conf/, or by Python."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest

from pyspark_commitlog import CommitLog, Producer
from tests.spark.conftest import REPOSITORY
from tests.spark.submitted import EXAMPLES, submit, without_the_venv
from tests.support.records import read_topic

FLIGHTS = EXAMPLES / "data" / "nycflights-2013.parquet"
TOPIC = "flights"


#: Where the parts begin that are ingested. The second holds the year's one flight between 1 and 2: it was cancelled.
PIECES = (0, 186_000)


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a root whose topic holds a part of the year's flights."""
    home = tmp_path_factory.mktemp("flights")
    flights = pq.read_table(FLIGHTS)
    (home / "data").mkdir()
    (home / "data" / "README.md").write_text("Not Parquet.")
    for number, first in enumerate(PIECES):
        pq.write_table(flights.slice(first, 10_000), home / "data" / f"{number}.parquet")
    places = ("--data", home / "data", "--root", home / "log", "--checkpoint", home / "checkpoint")
    submit("flights_ingest.py", *places, "--topic", TOPIC)
    return home


def ingested_flights(home: Path) -> list[dict[str, Any]]:
    """Return the flights that were ingested."""
    return [flight for path in (home / "data").glob("*.parquet") for flight in pq.read_table(path).to_pylist()]


def test_ingest_writes_every_flight_once_by_carrier_at_its_departure(ingested: Path) -> None:
    log = CommitLog(str(ingested / "log"))
    described = log.topic(TOPIC).describe()
    assert len(described.partitions) == 4
    assert described.config["retention.ms"] == "-1"
    flights = ingested_flights(ingested)
    wanted = sorted(
        (f["carrier"], f["flight"], f["origin"], round(f["scheduled_departure"].timestamp() * 1e6)) for f in flights
    )
    partitions: dict[bytes | None, set[int]] = defaultdict(set)
    found = []
    for record in read_topic(log.root.topic(TOPIC)):
        value = json.loads(record.value or b"{}")
        assert record.key == value["carrier"].encode()
        partitions[record.key].add(record.partition)
        found.append((value["carrier"], value["flight"], value["origin"], record.timestamp))
    assert sorted(found) == wanted
    assert all(len(used) == 1 for used in partitions.values())


@pytest.mark.nightly
def test_the_summary_gives_mean_delays_by_carrier_and_by_hour(ingested: Path) -> None:
    printed = submit("flights_summary.py", "--root", ingested / "log", "--topic", TOPIC)

    delays: dict[str, list[int]] = defaultdict(list)
    for flight in ingested_flights(ingested):
        hour = flight["scheduled_departure"].astimezone(ZoneInfo("America/New_York")).hour
        if flight["dep_delay"] is not None:
            delays[flight["carrier"]].append(flight["dep_delay"])
            delays[str(hour)].append(flight["dep_delay"])
    rows = {line.split()[0]: line.split() for line in printed.splitlines() if line.strip()}
    for key, found in delays.items():
        assert float(rows[key][2]) == pytest.approx(fmean(found), abs=0.051), key
    assert rows["1"] == ["1", "1", "(all", "cancelled)"]


@pytest.mark.nightly
def test_the_totals_of_an_update_query_are_those_of_all_flights(ingested: Path, tmp_path: Path) -> None:
    places = ("--root", ingested / "log", "--checkpoint", tmp_path / "checkpoint", "--topic", TOPIC)
    printed = submit("flights_totals.py", *places)
    carriers = Counter(flight["carrier"] for flight in ingested_flights(ingested))
    assert [line for line in printed.splitlines() if line.strip()] == [f"{c} {carriers[c]}" for c in sorted(carriers)]
    assert CommitLog(str(ingested / "log")).topic("flights-totals").describe().config["cleanup.policy"] == "compact"


@pytest.mark.nightly
def test_an_example_runs_by_the_path_of_its_interpreter_alone(ingested: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "flights_summary.py", "--root", ingested / "log", "--topic", TOPIC],
        env=without_the_venv(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "mean delay" in done.stdout


# --- the demo ---------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("root", ["demo", "s3"])
def test_the_demo_kills_its_writer_and_finds_the_same_by_stream_and_by_batch(tmp_path: Path, root: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py", "--root", root if root == "s3" else tmp_path / root],
        env={**os.environ, "SPARK_CONF_DIR": str(REPOSITORY / "spark-conf"), "COLUMNS": "120"},  # as `make demo` does
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    told = re.search(r"writer killed \(SIGKILL\) with ([\d,]+) flights in the log; starting it again", done.stdout)
    assert told, done.stdout
    total = pq.read_metadata(FLIGHTS).num_rows
    assert 0 < int(told[1].replace(",", "")) < total
    assert "stream and batch read give the same tables: True" in done.stdout
    assert f"flights in the log {total:,}, in the file {total:,}" in done.stdout
    assert "All is well" in done.stdout


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the demo as a module."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("demo")


def writer_that_ended(code: int) -> subprocess.Popen[bytes]:
    """Return a writer that ended with this exit code, and that nobody has waited for."""
    writer = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"], start_new_session=True)
    os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)
    return writer


def test_a_writer_that_fails_is_told_with_the_place_of_its_log(
    demo: ModuleType,
    log: CommitLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.create_topic(TOPIC)
    monkeypatch.setattr(demo, "start_writer", lambda root, url: writer_that_ended(3))
    with pytest.raises(SystemExit, match=re.escape(f"the writer failed, see {tmp_path / 'writer.log'}")):
        demo.write_with_a_kill(tmp_path, log, str(tmp_path / "log"), total=10)
    assert "killed" not in capsys.readouterr().out


@pytest.mark.parametrize("total", [10, 0], ids=["before there is enough", "when there is enough"])
def test_a_writer_that_finished_is_not_told_as_killed(
    total: int, demo: ModuleType, log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log.create_topic(TOPIC)
    monkeypatch.setattr(demo, "start_writer", lambda root, url: writer_that_ended(0))
    demo.write_with_a_kill(tmp_path, log, str(tmp_path / "log"), total)
    told = capsys.readouterr().out
    assert "writer killed" not in told
    assert "the writer finished before it could be killed" in told


def test_a_writer_that_was_seen_running_and_finished_is_not_told_as_killed(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended between the look and the signal, which a process that nobody has waited for takes and ignores."""
    writer = writer_that_ended(0)
    monkeypatch.setattr(writer, "poll", lambda: None)
    assert not demo.killed(writer)
    assert writer.returncode == 0


@pytest.mark.nightly
def test_a_topic_of_json_becomes_a_typed_one_with_bad_records_apart(ingested: Path) -> None:
    log = CommitLog(str(ingested / "log"))
    bad = [b"{no json", b'{"carrier": "AA", "flight": "twelve"}', b'{"flight": 12}', None]
    with Producer(str(ingested / "log")) as producer:
        for value in bad:
            producer.send(TOPIC, value)
    places = ("--root", ingested / "log", "--checkpoint", ingested / "typed-checkpoint")
    for _ in range(2):  # the second time there is nothing new
        printed = submit("json_to_typed.py", *places)
    rejected = log.topic("flights-typed-rejected").to_arrow(["value"]).column("value").to_pylist()
    assert sorted(map(str, rejected)) == sorted(map(str, bad))
    typed = log.topic("flights-typed").to_arrow(["carrier", "flight", "scheduled_departure"]).to_pylist()
    flights = ingested_flights(ingested)
    assert sorted((f["carrier"], f["flight"], f["scheduled_departure"]) for f in typed) == sorted(
        (f["carrier"], f["flight"], f["scheduled_departure"]) for f in flights
    )
    assert re.search(r"columns: [\d.]+ s, \d+ carriers", printed)
