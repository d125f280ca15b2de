"""The option `columns` that a query could use, from Spark's optimized plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark_commitlog.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCE = "commitlog"
_SUBSCRIBED = ("subscribe", "assign", "subscribePattern")


def suggest(df: DataFrame) -> list[str]:
    """Print, for each read of a log in a query, the `columns` option that names what it uses.

    Spark's Python sources have no column pruning: without the option all columns are decoded. Return the options'
    values, in the order of the plan.

    Raises:
        UsageError: the session is one of Spark Connect, which shows no plan.
    """
    jdf = getattr(df, "_jdf", None)
    if jdf is None:
        raise UsageError("suggest: Spark Connect shows no plan; call it in a session of its own driver")
    execution = jdf.queryExecution()
    # Not `optimizedPlan`, which refuses streams.
    plan = jdf.sparkSession().sessionState().optimizer().execute(execution.analyzed())
    used = _ids(plan.output())
    nodes = list(_nodes(plan))
    for node in nodes:
        if not node.children().isEmpty():
            used |= _ids(node.references().toSeq())
    found = []
    for node in nodes:
        if node.children().isEmpty() and _is_ours(node):
            output = list(_items(node.output()))
            names = [each.name() for each in output if each.exprId().id() in used] or [output[0].name()]
            found.append(", ".join(names))
            share = f"{len(names)} of {len(output)} columns"
            print(f'{_described(node)}: .option("columns", "{found[-1]}")  # {share}')  # noqa: T201 for notebooks
    return found


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _items(plan.children()):
        yield from _nodes(child)


def _items(sequence: Any) -> Iterator[Any]:
    for at in range(sequence.size()):
        yield sequence.apply(at)


def _ids(attributes: Any) -> set[int]:
    return {each.exprId().id() for each in _items(attributes)}


def _relation(node: Any) -> Any:
    return node.relation() if node.getClass().getSimpleName() == "DataSourceV2ScanRelation" else node


def _is_ours(node: Any) -> bool:
    kind = node.getClass().getSimpleName()
    if kind == "StreamingRelationV2":
        return bool(node.sourceName() == _SOURCE)
    return kind in ("DataSourceV2Relation", "DataSourceV2ScanRelation") and bool(
        _relation(node).table().name() == _SOURCE
    )


def _described(node: Any) -> str:
    relation = _relation(node)
    streams = node.getClass().getSimpleName() == "StreamingRelationV2"
    options = relation.extraOptions() if streams else relation.options()
    return next((f"{name} {value}" for name in _SUBSCRIBED if (value := options.get(name))), _SOURCE)
