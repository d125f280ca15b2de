"""The page: it is served with its scripts, and lists topics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request

from pyspark_commitlog import CommitLog


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as response:
        content: bytes = response.read()
    return content


if __name__ == "__main__":
    CommitLog("ui-log").create_topic("clicks")
    command = [os.path.join(os.path.dirname(sys.executable), "commitlog"), "ui", "ui-log", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert b"<title>commitlog</title>" in get(url)
        assert b"import" in get(f"{url}static/main.js")
        assert json.loads(get(f"{url}api/topics"))["rows"][0]["name"] == "clicks"
        process.terminate()
        assert process.wait(30) == 0
    print("ui")
