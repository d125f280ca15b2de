"""`python -m tests.mutants [--workers N] [--list] [WORD …]`: run the mutants that have one of the words in their entry.

Exit code 1 when one of them is not killed. `--list` prints them instead: guard, place, change, rule and test.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import astuple

from tests.mutants.listed import Mutant, load
from tests.mutants.running import Outcome, run_all


def main() -> int:
    """Run or print what was asked for, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Take guards out, one at a time.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only entries that have one of these anywhere")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time (2)")
    parser.add_argument("--list", action="store_true", help="print them instead of running them")
    asked = parser.parse_args()
    mutants = [
        each for each in load() if not asked.words or any(word in "\n".join(astuple(each)) for word in asked.words)
    ]
    if asked.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a traceback
        for each in mutants:
            print(f"{each.guard}\n    {each.at}  {each.change}  {each.rule}\n    {each.node_id}")
        return 0
    return _run(mutants, asked.workers)


def _run(mutants: Sequence[Mutant], workers: int) -> int:
    began, killed = time.monotonic(), 0
    for result in run_all(mutants, workers):
        mutant = result.mutant
        killed += result.outcome is Outcome.KILLED
        print(f"{result.outcome.value:8} {result.seconds:5.1f} s  {mutant.at}  {mutant.guard}")
        if result.outcome is not Outcome.KILLED:
            print(f"         {mutant.change}: {result.why}\n         {mutant.node_id}")
        sys.stdout.flush()
    print(f"{killed} of {len(mutants)} killed in {time.monotonic() - began:.0f} s")
    return 0 if killed == len(mutants) > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
