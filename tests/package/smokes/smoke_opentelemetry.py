"""The counters as instruments of OpenTelemetry's API, which has no SDK here."""

from __future__ import annotations

from opentelemetry.metrics import get_meter

from pyspark_commitlog.metrics import register_opentelemetry

if __name__ == "__main__":
    register_opentelemetry()
    register_opentelemetry(get_meter("another"))
    print("opentelemetry")
