"""Exports of the package: all that public methods return."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from typing import Any

import pytest

import pyspark_commitlog
from pyspark_commitlog import (
    Access,
    CommitLog,
    CommitLogListener,
    Consumer,
    Groups,
    Producer,
    Replicas,
    RootConfig,
    Topic,
)
from pyspark_commitlog.root.root import Root

PACKAGE = pyspark_commitlog.__name__
CLASSES = (Access, CommitLog, CommitLogListener, Consumer, Groups, Producer, Replicas, RootConfig, Topic)
FUNCTIONS = tuple(
    each for name in pyspark_commitlog.__all__ if inspect.isfunction(each := getattr(pyspark_commitlog, name))
)
#: Handles that methods return to the package's own modules, by the names of their modules.
INTERNAL = {"Storage": "storage.base", "TopicLog": "topic.topic", "GroupLog": "groups.state.group_log"}


def public_methods(cls: type) -> Iterator[Callable[..., object]]:
    """Yield the methods of a class, and the functions of its properties."""
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        if isinstance(member, property):
            member = member.fget
        elif isinstance(member, cached_property):
            member = member.func
        elif isinstance(member, classmethod | staticmethod):
            member = member.__func__
        if not name.startswith("_") and inspect.isfunction(member) and member.__module__.startswith(PACKAGE):
            yield inspect.unwrap(member)


def returned(function: Callable[..., Any]) -> set[type]:
    """Return the classes of the package that a return annotation names, also those imported for type checking alone."""
    module = sys.modules[function.__module__]
    annotation = ast.walk(ast.parse(function.__annotations__["return"]))
    names = {node.id for node in annotation if isinstance(node, ast.Name)}
    found = {vars(module).get(name) for name in names}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith(PACKAGE):
            imported = names.intersection(alias.name for alias in node.names)
            found |= {getattr(import_module(node.module), name) for name in imported}
    return {each for each in found if isinstance(each, type) and each.__module__.startswith(PACKAGE)}


@pytest.mark.parametrize("function", [*FUNCTIONS, *(each for cls in CLASSES for each in public_methods(cls))])
def test_what_a_public_method_returns_is_exported(function: Callable[..., Any]) -> None:
    for cls in returned(function):
        if INTERNAL.get(cls.__name__) != cls.__module__.removeprefix(f"{PACKAGE}."):
            assert cls.__name__ in pyspark_commitlog.__all__
            assert getattr(pyspark_commitlog, cls.__name__) is cls


def test_classes_are_found_inside_of_annotations() -> None:
    assert returned(Topic.offsets_for_times) == {pyspark_commitlog.OffsetAndTimestamp}
    assert returned(Producer.send) == {pyspark_commitlog.RecordMetadata}
    assert returned(CommitLog.maintain) == {pyspark_commitlog.Maintained}
    assert {cls.__name__ for cls in returned(Root.group)} == {"GroupLog"}


@pytest.mark.parametrize("name", pyspark_commitlog.__all__)
def test_each_export_is_there(name: str) -> None:
    assert getattr(pyspark_commitlog, name) is not None
