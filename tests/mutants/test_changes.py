"""Each change of the list, on a function that has something of everything."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.changes import NotApplicableError, changed

LINES = [
    "def f(a, b):",
    "    with lock(a):",
    "        sync(a)",
    "        put(a, kept=b)",
    "    try:",
    "        n = first(a) + 1",
    "    except OSError as error:",
    "        log(error)",
    "    if 0 <= a < b and a and b:",
    "        return max(a, b)",
    "    rest = [x for x in a if x > b]",
    "    return (a, not b) if a or b else {1: a, 2: b}",
]
FUNCTION = ast.parse("\n".join(LINES)).body[0]


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        ("Expr 1: drop", "sync(a)", "pass"),
        ("Expr 1: swap", "sync(a)\n        put(a, kept=b)", "put(a, kept=b)\n        sync(a)"),
        ("Expr 2: _; sync(b)", "put(a, kept=b)", "put(a, kept=b)\n        sync(b)"),
        ("Expr 2 > Name 2: drop", "put(a, kept=b)", "put(kept=b)"),
        ("keyword 1: drop", "put(a, kept=b)", "put(a)"),
        ("With 1: drop", "with lock(a):\n        sync(a)\n        put(a, kept=b)", "sync(a)\n    put(a, kept=b)"),
        ("BinOp 1: -", "first(a) + 1", "first(a) - 1"),
        ("BinOp 1: = left.args[0]", "first(a) + 1", "a"),
        ("ExceptHandler 1: drop", "except OSError as error", "except ()"),
        ("ExceptHandler 1: raise", "log(error)", "raise"),
        ("ExceptHandler 1: (_, KeyError)", "except OSError", "except (OSError, KeyError)"),
        ("If 1 > BoolOp 1: or", "0 <= a < b and a and b", "0 <= a < b or a or b"),
        ("If 1 > BoolOp 1: not", "0 <= a < b and a and b", "not (0 <= a < b and a and b)"),
        ("If 1 > Compare 1: drop", "0 <= a < b and a and b", "a and b"),
        ("Compare 1: drop first", "0 <= a < b", "a < b"),
        ("Compare 1: drop last", "0 <= a < b", "0 <= a"),
        ("Compare 1: <", "0 <= a", "0 < a"),
        ("Compare 1: False", "0 <= a < b", "False"),
        ("Return 1: return", "return max(a, b)", "return"),
        ("Return 1 > Call 1: = args[-1]", "max(a, b)", "b"),
        ("Return 1 > Call 1: min(_, 5)", "max(a, b)", "min(max(a, b), 5)"),
        ("Compare 2: drop", "for x in a if x > b", "for x in a"),
        ("Compare 2: >=", "x > b", "x >= b"),
        ("IfExp 1: = orelse", "(a, not b) if a or b else {1: a, 2: b}", "{1: a, 2: b}"),
        ("BoolOp 2: = values[0]", "a or b", "a"),
        ("UnaryOp 1: = operand", "not b", "b"),
        ("Tuple 1 > UnaryOp 1: drop", "(a, not b)", "(a,)"),
        ("Dict 1 > Name 2: drop", "{1: a, 2: b}", "{1: a}"),
        ("Dict 1: {}", "{1: a, 2: b}", "{}"),
    ],
)
def test_a_change_changes_that_alone(change: str, before: str, after: str) -> None:
    text = "\n".join(LINES)
    assert text.count(before) == 1
    assert ast.unparse(changed(FUNCTION, change)) == text.replace(before, after)
    assert ast.unparse(FUNCTION) == text


@pytest.mark.parametrize(
    "change",
    [
        "Expr 4: drop",
        "Expr 0: drop",
        "Expr: drop",
        "Expr 1",
        "If 1 > While 1: True",
        "Return 2: swap",
        "Compare 2: drop first",
        "BinOp 1: <",
        "BoolOp 2 > Name 1: drop",
        "BinOp 1: drop",
        "Call 1: = orelse",
        "Call 1: = args[7]",
        "Call 1: return",
        "Call 1: x = 1",
        "Call 1: )",
        "Compare 1: <=",
    ],
)
def test_a_change_that_does_not_fit_is_refused(change: str) -> None:
    with pytest.raises(NotApplicableError):
        changed(FUNCTION, change)


def test_docstrings_are_not_counted() -> None:
    def function(body: str) -> ast.AST:
        return ast.parse(f"def f():\n    {body}def g():\n        return 'a'\n    put(g())").body[0]

    with_docstring = function("'what f does'\n    ")
    for change, expected in [("Expr 1: drop", "put(g())"), ("Constant 1: 'b'", "'a'")]:
        before = ast.unparse(changed(function(""), change))
        assert expected not in before
        assert ast.unparse(changed(with_docstring, change)).replace('    """what f does"""\n', "") == before
