"""The changes that take a guard out, addressed on the syntax tree: spelling and layout of the source do not matter.

A change is `<node> <n>: <what>`: the n-th node of a class of Python's `ast` in a definition, in the order of the
source, nested definitions included; `If 2 > Compare 1: …` is the first comparison in the second `if`. What is one of

- `drop`: a statement does nothing; a `with` keeps its body alone; an `except` catches nothing; an argument, an
  element, an operand of `and` or `or`, a condition of a comprehension is left out; `drop first` or `drop last`
  leaves out a link of a chain of comparisons
- Python (`False`, `10**9`, `min(_, 5)`, `_; again()`): stands in the place of the expression, the statement, or
  the type of the `except`; `_` is what stood there
- `= <path>`: a part of the expression stands in its place, as `= args[0]`, `= left`, `= orelse`
- an operator (`<=`, `not in`, `and`, `-`): in place of the node's own
- `not`: the condition is turned around
- `raise`, `return`, `continue`: the statement, or the body of an `except`, is that alone
- `swap`: the statement and the one that follows it change places

Docstrings are not counted.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass

_STEP = re.compile(r"([A-Za-z]+) ([1-9][0-9]*)")
_OPERATORS: dict[str, ast.AST] = {
    "==": ast.Eq(), "!=": ast.NotEq(), "<": ast.Lt(), "<=": ast.LtE(), ">": ast.Gt(), ">=": ast.GtE(),
    "is": ast.Is(), "is not": ast.IsNot(), "in": ast.In(), "not in": ast.NotIn(),
    "and": ast.And(), "or": ast.Or(),
    "+": ast.Add(), "-": ast.Sub(), "*": ast.Mult(), "/": ast.Div(), "//": ast.FloorDiv(), "%": ast.Mod(),
    "&": ast.BitAnd(), "|": ast.BitOr(),
}  # fmt: skip
_STATEMENTS: dict[str, ast.stmt] = {"raise": ast.Raise(), "return": ast.Return(), "continue": ast.Continue()}


class NotApplicableError(ValueError):
    """A change does not fit the code: its node is not there, or nothing would change."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands in its parent: in a field, or in a list in a field."""

    parent: ast.AST
    field: str
    index: int | None

    @property
    def node(self) -> ast.AST:
        """Return the node."""
        held = getattr(self.parent, self.field)
        return held if self.index is None else held[self.index]

    def put(self, *nodes: ast.AST) -> None:
        """Put other nodes there; several, or none, only in a list."""
        if self.index is not None:
            getattr(self.parent, self.field)[self.index : self.index + 1] = nodes
        elif len(nodes) == 1:
            setattr(self.parent, self.field, nodes[0])
        else:
            raise NotApplicableError(f"{type(self.parent).__name__} needs its {self.field}")


def places(tree: ast.AST) -> Iterator[Place]:
    """Yield the places of all nodes below a node but docstrings, in the order of the source."""
    for field, value in ast.iter_fields(tree):
        nodes = enumerate(value) if isinstance(value, list) else [(None, value)]
        for index, node in nodes:
            if isinstance(node, ast.AST) and not (index == 0 and _is_docstring(tree, node)):
                yield Place(tree, field, index)
                yield from places(node)


def _is_docstring(parent: ast.AST, first: ast.AST) -> bool:
    documented = isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
    return (
        documented
        and isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


def changed(definition: ast.AST, change: str) -> ast.AST:
    """Return a copy of a definition with a change.

    Raises:
        NotApplicableError: it does not fit.
    """
    result = copy.deepcopy(definition)
    address, _, what = change.partition(": ")
    _apply(_found(result, address), what)
    if ast.dump(result) == ast.dump(definition):
        raise NotApplicableError(f"{change!r} changes nothing")
    return result


def _found(tree: ast.AST, address: str) -> Place:
    place = None
    for step in address.split(" > "):
        match = _STEP.fullmatch(step)
        if match is None:
            raise NotApplicableError(f"{step!r} is not the class and number of a node")
        within = [each for each in places(tree) if type(each.node).__name__ == match[1]]
        if int(match[2]) > len(within):
            raise NotApplicableError(f"{address!r}: there are {len(within)} of {match[1]}")
        place = within[int(match[2]) - 1]
        tree = place.node
    assert place is not None
    return place


def _apply(place: Place, what: str) -> None:
    node = place.node
    if what == "drop":
        _drop(place)
    elif what in ("drop first", "drop last"):
        _shorten(place, first=what == "drop first")
    elif what == "swap":
        _swap(place)
    elif what == "not":
        place.put(ast.UnaryOp(ast.Not(), _expression(node)))
    elif what in _STATEMENTS:
        _replace_statement(place, copy.copy(_STATEMENTS[what]))
    elif what in _OPERATORS:
        _operate(node, _OPERATORS[what])
    elif what.startswith("= "):
        place.put(_part(_expression(node), what[2:]))
    else:
        _replace(place, what)


def _expression(node: ast.AST) -> ast.expr:
    if not isinstance(node, ast.expr):
        raise NotApplicableError(f"{type(node).__name__} is no expression")
    return node


def _replace(place: Place, text: str) -> None:
    node = place.node
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise NotApplicableError(f"{text!r} is neither Python nor the name of a change") from error
    if not body:
        raise NotApplicableError("what becomes of the node is not said")
    if isinstance(node, ast.stmt):
        place.put(*(node if _is_placeholder(each) else each for each in body))
        return
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        raise NotApplicableError(f"{text!r} is no expression")
    if isinstance(node, ast.ExceptHandler):
        assert node.type is not None
        node.type = _Filled(node.type).visit(body[0].value)
    else:
        place.put(_Filled(_expression(node)).visit(body[0].value))


def _is_placeholder(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Name) and statement.value.id == "_"


class _Filled(ast.NodeTransformer):
    """Puts an expression where `_` stands."""

    def __init__(self, node: ast.expr) -> None:
        self._node = node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._node if node.id == "_" else node


def _part(node: ast.expr, path: str) -> ast.expr:
    part: ast.AST = node
    for name, index in re.findall(r"(\w+)(?:\[(-?\d+)\])?", path):
        try:
            held = getattr(part, name)
            part = held[int(index)] if index else held
        except (AttributeError, IndexError) as error:
            raise NotApplicableError(f"{ast.unparse(node)} has no {path}") from error
    return _expression(part.value if isinstance(part, ast.keyword) else part)


def _drop(place: Place) -> None:
    node, parent = place.node, place.parent
    if isinstance(node, ast.With):
        place.put(*node.body)
    elif isinstance(node, ast.stmt):
        place.put(ast.Pass())
    elif isinstance(node, ast.ExceptHandler):
        node.type, node.name = ast.Tuple([], ast.Load()), None
    elif place.index is None or (isinstance(parent, ast.stmt) and place.field != "targets"):
        raise NotApplicableError(f"{type(parent).__name__} needs its {place.field}")
    elif isinstance(parent, ast.BoolOp) and len(parent.values) == 2:
        raise NotApplicableError("of two operands one is dropped by: BoolOp …: = values[…]")
    elif isinstance(parent, ast.Dict):
        del parent.keys[place.index], parent.values[place.index]
    else:
        place.put()


def _shorten(place: Place, *, first: bool) -> None:
    node = place.node
    if not isinstance(node, ast.Compare) or len(node.ops) < 2:
        raise NotApplicableError(f"{type(node).__name__} is no chain of comparisons")
    if first:
        node.left = node.comparators.pop(0)
        del node.ops[0]
    else:
        del node.ops[-1], node.comparators[-1]


def _swap(place: Place) -> None:
    held = getattr(place.parent, place.field)
    if not isinstance(place.node, ast.stmt) or place.index is None or place.index + 1 >= len(held):
        raise NotApplicableError("no statement follows")
    held[place.index : place.index + 2] = held[place.index + 1], held[place.index]


def _replace_statement(place: Place, statement: ast.stmt) -> None:
    if isinstance(place.node, ast.ExceptHandler):
        place.node.body = [statement]
    elif isinstance(place.node, ast.stmt):
        place.put(statement)
    else:
        raise NotApplicableError(f"{type(place.node).__name__} is no statement")


def _operate(node: ast.AST, operator: ast.AST) -> None:
    if isinstance(node, ast.Compare) and isinstance(operator, ast.cmpop):
        node.ops[0] = operator
    elif (isinstance(node, ast.BoolOp) and isinstance(operator, ast.boolop)) or (
        isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(operator, ast.operator)
    ):
        node.op = operator
    else:
        raise NotApplicableError(f"{type(node).__name__} has no operator of that kind")
