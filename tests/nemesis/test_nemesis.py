"""Three minutes of the nemesis; `make test-nemesis` runs as long as it is asked to."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.nightly
def test_everything_fails_for_three_minutes() -> None:
    """Nothing acknowledged is lost or twice, no offset changes its record, no high watermark goes back, roots are equal."""
    command = [sys.executable, "-m", "tests.nemesis", "--minutes", "3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
