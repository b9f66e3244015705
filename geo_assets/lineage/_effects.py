"""What a statement changes of other things: while its module is imported, and when what it defines runs.

Registries are filled in many ways: `REG[k] = f`, `REG.append(f)`, `H = register(f)`, a decorator inside a
class or a block. Told apart are objects that are written to, and functions that are called and may write.
"""

import ast
from collections.abc import Sequence

from geo_assets.lineage._names import COMPREHENSIONS, FUNCTIONS, Ref, bound_by, chain_of, parameter_names
from geo_assets.lineage._walker import Walker

MUTATING = {
    "add",
    "append",
    "appendleft",
    "clear",
    "discard",
    "extend",
    "insert",
    "pop",
    "popitem",
    "register",
}
MUTATING |= {"remove", "setdefault", "update"}
BUILTIN = {"dict", "list", "set"}


class Effects:
    """Collects what nodes write to and call.

    Args:
        walker: resolves names; nothing else is done with it.
        deep: whether bodies of functions count, as when they are called.
    """

    def __init__(self, walker: Walker, deep: bool) -> None:
        self._walker, self._deep = walker, deep
        self._own: dict[str, str] = {}
        self.writes: set[Ref] = set()
        self.calls: set[Ref] = set()

    def visit(self, node: ast.AST, owner: str = "") -> None:
        """One node and all below it; `owner` is the class whose body it stands in."""
        if isinstance(node, FUNCTIONS):
            self._function(node, owner)
            return
        if isinstance(node, ast.ClassDef):
            self._class(node)
            return
        if isinstance(node, ast.Lambda):
            if self._deep:
                self._scoped(parameter_names(node.args), [node.body])
            return
        if isinstance(node, COMPREHENSIONS):
            names = bound_by(generator.target for generator in node.generators)
            self._scoped(names, list(ast.iter_child_nodes(node)))
            return
        if isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            self._write(node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self._write(node.target)
        elif isinstance(node, ast.Global):
            self.writes |= {("", name) for name in node.names}
        for child in ast.iter_child_nodes(node):
            self.visit(child)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str) -> None:
        outside = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]
        for decorator in node.decorator_list:
            self._called(decorator)
        for part in outside:
            if part is not None:
                self.visit(part)
        if not self._deep:
            return
        names = parameter_names(node.args) | bound_by(node.body)
        names -= {name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names}
        first = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)][:1]
        before = self._own
        if owner and first and any(chain_of(item) == ("classmethod", ()) for item in node.decorator_list):
            # What a class method writes to its first argument, it writes to the class.
            self._own = {first[0]: owner}
        self._scoped(names, node.body)
        self._own = before

    def _class(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self._called(decorator)
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self._walker.scopes.append((self._walker.scope(bound_by(node.body), node.body), True))
        for statement in node.body:
            self.visit(statement, node.name)
        self._walker.scopes.pop()

    def _scoped(self, names: set[str], body: Sequence[ast.AST]) -> None:
        self._walker.scopes.append((self._walker.scope(names, body), False))
        for node in body:
            self.visit(node)
        self._walker.scopes.pop()

    def _call(self, node: ast.Call) -> None:
        self._called(node.func)
        chain = chain_of(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING:
            if chain is not None and chain[0] in BUILTIN and node.args:
                self._write(node.args[0])
            self._write(node.func.value)
        elif chain in (("setattr", ()), ("delattr", ())) and node.args:
            self._write(node.args[0])

    def _called(self, node: ast.expr) -> None:
        if (ref := self._ref(node)) is not None:
            self.calls.add(ref)

    def _write(self, node: ast.expr) -> None:
        if (ref := self._ref(node)) is not None:
            self.writes.add(ref)

    def _ref(self, node: ast.expr) -> Ref | None:
        found = root_of(self._walker, node)
        if found is not None:
            return found
        while isinstance(node, ast.Call | ast.Subscript | ast.Attribute):
            node = node.func if isinstance(node, ast.Call) else node.value
        own = self._own.get(node.id) if isinstance(node, ast.Name) else None
        return ("", own) if own else None


def root_of(walker: Walker, node: ast.expr) -> Ref | None:
    """The reference at the root of a call, a subscript or a chain of attributes."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    chain = chain_of(node)
    return walker.ref(*chain) if chain else None


def handed_over(walker: Walker, statement: ast.stmt) -> set[Ref]:
    """What a call that stands for itself is given by name, and so may fill."""
    found: set[Ref] = set()
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            if chain_of(argument) and (ref := root_of(walker, argument)):
                found.add(ref)
    return found
