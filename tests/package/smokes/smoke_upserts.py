"""Postgres' client is there with its library, and the PySpark that Delta is for."""

from __future__ import annotations

import psycopg
import pyspark

if __name__ == "__main__":
    assert psycopg.pq.version() >= 120000
    assert pyspark.__version__.startswith("4.2."), pyspark.__version__
    print("upserts")
