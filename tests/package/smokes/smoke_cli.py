"""The command: a topic is made, written and read."""

from __future__ import annotations

import os
import subprocess
import sys


def commitlog(*arguments: str, given: str = "") -> str:
    command = os.path.join(os.path.dirname(sys.executable), "commitlog")
    done = subprocess.run([command, *arguments], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout


if __name__ == "__main__":
    assert "produce" in commitlog("--help")
    commitlog("topics", "create", "cli-log", "clicks")
    commitlog("produce", "cli-log", "clicks", given="hello\n")
    assert commitlog("cat", "cli-log", "clicks", "-e") == "hello\n"
    assert "clicks" in commitlog("topics", "describe", "cli-log")
    print("cli")
