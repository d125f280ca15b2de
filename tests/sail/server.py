"""A Sail server in a process of its own: prints its port, and ends when its input does."""

from __future__ import annotations

import faulthandler
import sys

from pysail.spark import SparkConnectServer

if __name__ == "__main__":
    faulthandler.enable()
    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    print(server.listening_address[1], flush=True)
    sys.stdin.read()
    server.stop()
