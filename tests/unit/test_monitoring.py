"""The alert rules and the dashboard name metrics and labels that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyspark_commitlog.cli.common.metric_samples import METRICS
from pyspark_commitlog.metrics import COUNTERS

REPOSITORY = Path(__file__).parents[2]
MONITORING = REPOSITORY / "monitoring"
KNOWN = {**METRICS, **COUNTERS}
#: Labels that Prometheus adds, or that the rules give.
ADDED = {"instance", "job"}
_NAME = re.compile(r"\b(?:kafka|commitlog)_[a-z_]+\b")
_MATCHED = re.compile(r"([a-z_]+)\{([^}]*)\}")
_LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
_BY = re.compile(r"\bby \(([^)]*)\)")
_SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    return list(json.loads((MONITORING / "dashboard.json").read_text())["panels"])


EXPRESSIONS = [
    *((rule["expr"], rule["annotations"]["summary"]) for rule in rules()),
    *((target["expr"], target["legendFormat"]) for panel in panels() for target in panel["targets"]),
]


@pytest.mark.parametrize(("expression", "shown"), EXPRESSIONS)
def test_an_expression_names_metrics_and_labels_that_there_are(expression: str, shown: str) -> None:
    names = set(_NAME.findall(re.sub(r'"[^"]*"', '""', expression)))
    assert names or expression.startswith("up{")
    assert names <= KNOWN.keys()
    for name, matched in _MATCHED.findall(expression):
        assert set(_LABEL.findall(matched)) <= {*(KNOWN[name].labels if name in KNOWN else ()), *ADDED}
    labels = {label for name in names for label in KNOWN[name].labels} | ADDED
    kept = {label.strip() for found in _BY.findall(expression) for label in found.split(",")}
    assert kept <= labels
    assert set(_SHOWN.findall(shown)) <= (kept or labels) | {"value"}


def test_each_rule_has_a_name_of_its_own_and_a_severity() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 8
    assert {rule["labels"]["severity"] for rule in rules()} == {"critical", "warning"}


def test_the_dashboard_shows_what_operators_ask_for() -> None:
    shown = {panel["title"]: panel["targets"][0]["expr"] for panel in panels()}
    assert "rate(kafka_topic_partition_current_offset" in shown["Throughput"]
    assert "kafka_consumergroup_lag_sum" in shown["Lag of groups"]
    assert "unsettled_age_seconds" in shown["Age of unsettled records"]
    assert "segment_bytes" in shown["Stored bytes"]
    assert "under_replicated" in shown["Under-replicated partitions"]
    assert len({panel["id"] for panel in panels()}) == len(panels())
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("page", ["how-to/metrics.md", "how-to/maintenance.md"])
def test_pages_name_metrics_that_there_are(page: str) -> None:
    named = set(_NAME.findall((REPOSITORY / "docs" / page).read_text()))
    assert {name for name in named if not name.endswith("_")} - KNOWN.keys() == set()
