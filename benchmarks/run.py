"""`make bench`: what ours does next to its peers and to floors, in one run on one machine.

    python benchmarks/run.py [--records 4000000] [--runs 3] [--warm-up 8] [--only write,read,…] [--quick] [--keep]
                              [--work DIR]

All contenders of a row run in turn in one warm session, page cache warm; a figure is the median of its runs. A ratio is
ours / peer, of records/s more is better, of all else less. Absolute figures are of this machine only.

Peers: Parquet; floors, which no Python source or sink can beat; and, once `make bench-peers` has fetched them, Kafka
with Spark's connector, confluent-kafka and Delta. Rows by kind are in `rows/`. `--quick` leaves out most rows, and
of Kafka all but the tuned one.

Then the main rows are measured again in two further sessions, each with a Java of its own: one that
`configure_spark` sets, and one as it comes. The last table has the ratios side by side.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path

import client_peer
import kafka_peer
import machine
import pyspark
from bench import Bench
from compare import HEAD, Row, side_by_side
from rows import MAIN, ROWS, SIDE_BY_SIDE
from session import CONFIGURED, SESSIONS, session

HERE = Path(__file__).resolve().parent
NO_PEERS = "Kafka and Delta are left out: `make bench-peers` fetches them."
NO_CLIENT = "confluent-kafka is left out: `make bench-peers` fetches it."
QUICK_RECORDS = 600_000


def main() -> None:
    """Measure what was asked for, print the table, keep it as JSON lines."""
    args = _arguments()
    about = machine.describe(args.work) | {"pyspark": pyspark.__version__, "records": args.records}
    about |= {"runs": args.runs, "warm_up": args.warm_up}
    about |= {"session": args.session}
    if args.alone:
        print(f"\nSession: {args.session}")
    else:
        print(machine.described(about))
    peers = machine.peers_are_there()
    if args.alone:
        pass
    elif not peers:
        print(NO_PEERS)
    elif not client_peer.is_there():
        print(NO_CLIENT)
    print(f"\n{HEAD}", flush=True)
    directory = HERE / "results" if args.keep else args.work
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / f"{about['commit']}.jsonl"
    _append(target, about)
    begin = target.stat().st_size

    def keep(row: Row) -> None:
        _append(target, {**row.__dict__, "session": args.session, "ratio": row.ratio})

    _measure(args, peers=peers, keep=keep)
    if args.alone:
        return
    if not args.quick:
        for name in SESSIONS:
            if name != args.session:
                _measure_in(name, args)
        print()
        for line in side_by_side(_kept(target, begin), SESSIONS):
            print(line)
    print(f"\nkept in {target}")


def _measure_in(name: str, args: argparse.Namespace) -> None:
    """Measure those of the rows that depend on the session in another one, in a process of its own."""
    rows = [row for row in args.only if row in SIDE_BY_SIDE]
    if not rows:
        return
    command = [
        sys.executable,
        __file__,
        "--alone",
        "--session",
        name,
        "--only",
        ",".join(rows),
        "--work",
        str(args.work),
    ]
    command += ["--records", str(args.records), "--runs", str(args.runs), "--warm-up", str(args.warm_up)]
    subprocess.run(command + (["--keep"] if args.keep else []), check=True)


def _kept(target: Path, begin: int) -> list[Row]:
    """Return the rows that were kept from a position of the file on."""
    names = [field.name for field in fields(Row)]
    lines = (json.loads(line) for line in target.read_bytes()[begin:].splitlines())
    return [Row(**{name: line[name] for name in names}) for line in lines if "work" in line]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int)
    parser.add_argument("--runs", type=int, help="measured runs of each contender, each after one that does not count")
    parser.add_argument("--warm-up", type=int, help="rounds before the measured ones, where records/s are compared")
    parser.add_argument("--only", default="", help=f"some of {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="fewer records, runs and peers, the main rows")
    parser.add_argument("--keep", action="store_true", help="write to benchmarks/results, for a commit")
    parser.add_argument("--work", type=Path, default=HERE.parent / "build" / "bench")
    parser.add_argument("--session", choices=SESSIONS, default=CONFIGURED, help="the first, or only, session")
    parser.add_argument("--alone", action="store_true", help="no other session after it")
    args = parser.parse_args()
    args.work = args.work.resolve()
    args.records = args.records or (QUICK_RECORDS if args.quick else 4_000_000)
    args.runs = args.runs or (1 if args.quick else 3)
    args.warm_up = (0 if args.quick else 8) if args.warm_up is None else args.warm_up
    args.only = args.only.split(",") if args.only else list(MAIN if args.quick else ROWS)
    if unknown := set(args.only) - set(ROWS):
        parser.error(f"no such rows: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    return args


def _measure(args: argparse.Namespace, *, peers: bool, keep: Callable[[Row], None]) -> None:
    scratch, broker = args.work / "scratch", args.work / "scratch-kafka"
    for left_behind in (scratch, broker):  # by a run that was killed
        shutil.rmtree(left_behind, ignore_errors=True)
    scratch.mkdir(parents=True)
    spark = session(args.work / "spark.log", args.session)
    try:
        with kafka_peer.running(spark, broker) if peers else nullcontext() as kafka:
            bench = Bench(
                spark, args.work, args.records, args.runs, kafka,
                delta=peers, quick=args.quick, warm_up=args.warm_up, keep=keep,
            )  # fmt: skip
            for name in args.only:
                ROWS[name](bench)
    finally:
        spark.stop()
        for done_with in (scratch, broker):
            shutil.rmtree(done_with, ignore_errors=True)


def _append(target: Path, line: Mapping[str, object]) -> None:
    """Append a line to the file of this commit: the machine, or a row as soon as it is known."""
    with target.open("a") as out:
        out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
