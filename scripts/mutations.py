"""The small ways in which a module can be broken, found in its syntax tree."""

import ast
import copy
import difflib
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


class Mutant(NamedTuple):
    """One change of one module."""

    path: Path
    line: int
    source: str
    """The whole module with the change; comments are lost."""
    diff: str


class Place(NamedTuple):
    """Where in the tree a node hangs: below `parent`, in a field, which may be a list."""

    parent: ast.AST
    field: str
    position: int | None

    @property
    def node(self) -> ast.AST:
        """What hangs there."""
        value = getattr(self.parent, self.field)
        node: ast.AST = value if self.position is None else value[self.position]
        return node

    def put(self, node: ast.AST) -> None:
        """Hang something else there."""
        if self.position is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.position] = node


def count_of(path: Path) -> int:
    """How many mutants a module has."""
    return sum(1 for _ in _changes(ast.parse(path.read_text("utf-8"))))


def mutants_of(path: Path, numbers: Container[int]) -> Iterator[Mutant]:
    """Those mutants of a module that have these numbers. The tree is changed, printed, and changed back."""
    tree = ast.parse(path.read_text("utf-8"))
    before = ast.unparse(tree).splitlines()
    for number, (place, changed) in enumerate(_changes(tree)):
        if number in numbers:
            node = place.node
            place.put(ast.copy_location(changed, node))
            after = ast.unparse(ast.fix_missing_locations(tree))
            place.put(node)
            diff = difflib.unified_diff(before, after.splitlines(), str(path), "mutant", n=2, lineterm="")
            yield Mutant(path, getattr(node, "lineno", 0), after, "\n".join(diff))


def _changes(tree: ast.AST) -> Iterator[tuple[Place, ast.AST]]:
    """Every place that can be changed, and what to put there."""
    for place in list(_places(tree)):
        if (changed := _mutated(place.node)) is not None:
            yield place, changed


def _places(node: ast.AST, *, in_function: bool = False) -> Iterator[Place]:
    """All places in the bodies of functions. What no test should have to notice is left out."""
    in_function = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "args", "returns", "decorator_list") and not isinstance(node, ast.Call):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not _is_left_alone(child):
                if in_function:
                    yield Place(node, field, index)
                yield from _places(child, in_function=in_function)


def _is_left_alone(node: ast.AST) -> bool:
    """Logs, assertions for the type checkers, texts for people, patterns, and methods without a body."""
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.pattern():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return "log" in name.lower()
        case ast.FunctionDef(name=name):
            return name in ("__repr__", "__str__")
        case ast.ClassDef(bases=[ast.Name(id="Protocol"), *_]):
            return True
    return False


def _mutated(node: ast.AST) -> ast.AST | None:
    """What to put in the place of a node, if there is anything."""
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            changed = copy.copy(node)
            changed.test = ast.UnaryOp(ast.Not(), node.test)
            return changed
        case ast.Compare(ops=[_]) | ast.BoolOp() | ast.BinOp(op=ast.Add() | ast.Sub()):
            return _with_another_operator(node)
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.Constant(value=bool() as value):
            return ast.Constant(not value)
        case ast.Constant(value=int() as value) if value in (0, 1):
            return ast.Constant(value + 1)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            return ast.Return(ast.Constant(None))
    return ast.Pass() if _can_be_dropped(node) else None


def _with_another_operator(node: ast.Compare | ast.BoolOp | ast.BinOp) -> ast.AST:
    changed = copy.copy(node)
    if isinstance(changed, ast.Compare):
        vars(changed)["ops"] = [SWAPPED[type(changed.ops[0])]()]
    else:
        vars(changed)["op"] = SWAPPED[type(changed.op)]()
    return changed


def _can_be_dropped(node: ast.AST) -> bool:
    """Whether a statement may be missing without a name being unknown: that would be caught too easily."""
    match node:
        case (
            ast.Expr(value=ast.Call() | ast.Await())
            | ast.Raise()
            | ast.AugAssign()
            | ast.Break()
            | ast.Continue()
        ):
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
    return False
