"""Names in a syntax tree: what statements and imports bind, and what a chain of attributes starts from."""

import ast
from collections.abc import Iterable, Iterator, Sequence

Import = tuple[str, str]
"""What an import binds a name to: a module, and a name in it (empty: the module itself)."""

Ref = tuple[str, ...]
"""A reference: module (empty: the own one), then name and attributes, as far as they stand in the text."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def import_targets(
    node: ast.Import | ast.ImportFrom, home: str, faults: list[tuple[int, str]]
) -> Iterator[tuple[str, Import]]:
    """The names that an import binds, each with what it stands for.

    Args:
        home: the package that relative imports start from.
        faults: gets what cannot be followed.
    """
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (
                (alias.asname, (alias.name, ""))
                if alias.asname
                else (
                    alias.name.split(".")[0],
                    (alias.name.split(".")[0], ""),
                )
            )
            if not alias.asname and "." in alias.name:
                # `import a.b` binds a, and a.b is reached through it; that it is imported must be known.
                yield f"{alias.name}", (alias.name, "")
        return
    base = node.module or ""
    if node.level:
        parts = home.split(".") if home else []
        if node.level > len(parts):
            faults.append((node.lineno, "imports from above the top of its package"))
            return
        base = ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
    for alias in node.names:
        if alias.name == "*":
            faults.append((node.lineno, f"imports * from {base}"))
        elif base != "__future__":
            yield alias.asname or alias.name, (base, alias.name)


def is_type_checking(test: ast.expr) -> bool:
    """Whether a condition is `TYPE_CHECKING` or `typing.TYPE_CHECKING`."""
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def undocumented(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """A body without its docstring and without what stands for types alone."""
    first = body[0] if body else None
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    if documented and isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        documented = isinstance(first.value.value, str)
    kept: list[ast.stmt] = []
    for statement in body[1:] if documented else body:
        if isinstance(statement, ast.If) and is_type_checking(statement.test):
            kept += undocumented(statement.orelse)
        elif not isinstance(statement, ast.Pass):
            kept.append(statement)
    return kept


def chain_of(node: ast.expr) -> tuple[str, tuple[str, ...]] | None:
    """Root name and attributes of `a.b.c`; None for anything else."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node.id, tuple(reversed(attributes))) if isinstance(node, ast.Name) else None


def bound_by(statements: Iterable[ast.AST], imports: bool = True) -> set[str]:
    """Names that statements bind in their own scope, with or without what imports bind."""
    found: set[str] = set()
    todo = list(statements)
    while todo:
        node = todo.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            found.add(node.name)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, COMPREHENSIONS):
            # Targets are its own; what `:=` binds inside belongs outside.
            found |= {
                inner.target.id
                for inner in ast.walk(node)
                if isinstance(inner, ast.NamedExpr) and isinstance(inner.target, ast.Name)
            }
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(node.id)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        elif imports and isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        todo += ast.iter_child_nodes(node)
    return found


def imports_within(
    body: Iterable[ast.AST], home: str, faults: list[tuple[int, str]]
) -> dict[str, set[Import]]:
    """What the imports of a scope bind, inner functions and classes left out."""
    found: dict[str, set[Import]] = {}
    todo = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, target in import_targets(node, home, faults):
                found.setdefault(name, set()).add(target)
        elif not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            todo += ast.iter_child_nodes(node)
    return found


def parameter_names(args: ast.arguments) -> set[str]:
    """The names of all parameters."""
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    found += [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return {arg.arg for arg in found}
