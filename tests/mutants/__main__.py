"""``python -m tests.mutants [--workers N] [--docs] [WORD …]``: run the mutants that have one of the words in their entry.

Exit code 1 when one of them is not killed. ``--docs`` writes docs/explanation/guards.md and the tables of tests/README.md instead, and runs nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import astuple

from tests import modules
from tests.mutants.listed import DOCUMENT, document, load
from tests.mutants.running import Outcome, run_all


def main() -> int:
    """Run what was asked for, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Take guards out, one at a time.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only entries that have one of these anywhere")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time (2)")
    parser.add_argument("--docs", action="store_true", help="write docs/explanation/guards.md instead of running")
    asked = parser.parse_args()
    mutants = load()
    if asked.docs:
        DOCUMENT.write_text(document(mutants))
        modules.write()
        return 0
    if asked.words:
        mutants = [each for each in mutants if any(word in "\n".join(astuple(each)) for word in asked.words)]
    began, killed = time.monotonic(), 0
    for result in run_all(mutants, asked.workers):
        mutant = result.mutant
        killed += result.outcome is Outcome.KILLED
        print(f"{result.outcome.value:8} {result.seconds:5.1f} s  {mutant.at}  {mutant.guard}")
        if result.outcome is not Outcome.KILLED:
            print(f"         {mutant.text!r} -> {mutant.put!r}: {result.why}\n         {mutant.node_id}")
        sys.stdout.flush()
    print(f"{killed} of {len(mutants)} killed in {time.monotonic() - began:.0f} s")
    return 0 if killed == len(mutants) > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
