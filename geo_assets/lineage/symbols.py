"""What one module holds, symbol by symbol: what each runs, as a digest, and the names it refers to.

A *unit* is a top-level statement: a function, a class, an assignment, or a compound statement with all that
it binds (a conditional definition counts whole, and so does a class with its methods). Two spellings of the
same code give the same digest: comments, docstrings, formatting, the order and aliases of imports and the
order of units do not count. Annotations of functions count only under a decorator that could read them; those
of a class body count, because dataclasses and pydantic read them. What stands under `if TYPE_CHECKING` counts
nowhere.

A function declared inside another one by a declaring decorator is a unit of its own, `outer.<locals>.inner`,
with the statements of the outer one that bind what it captures.
"""

import ast
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from geo_assets.lineage._effects import Effects, handed_over, root_of
from geo_assets.lineage._names import (
    FUNCTIONS,
    Import,
    Ref,
    bound_by,
    import_targets,
    imports_within,
    undocumented,
)
from geo_assets.lineage._walker import DECLARING, Walker

FORMAT = 2
"""Raised when equal code gives another digest than before, so that no cache speaks of an older making."""

BLOCKS = (ast.If, ast.Try, ast.TryStar, ast.For, ast.While, ast.With, ast.Match)
DIGITS = 16
SHOWN = 60


@dataclass(frozen=True)
class Unit:
    """One statement of a module.

    Attributes:
        names: what it binds; empty for a statement that only acts.
        shown: how it is named to people.
        digest: of what it runs.
        refs: what it refers to; see `_walker.Ref`.
        imported: modules that it imports while it runs.
        faults: (line, words) of what cannot be followed in it.
        probes: (line, function, reference): names looked up by string, refused on a module.
        value: whether it is no function and no class.
        acts: what it acts on when its module is imported: the function or object of a call, the object of a
            subscript. None for a statement that does nothing but bind.
        decorators: its decorators, which may register it.
        writes: what it may write to when what it defines is called.
        effects, calls: what it writes to, and what it calls, when its module is imported.
        handed: what a call that stands for itself is given, and so may fill.
        main: whether it runs only when its module is started as a script.
    """

    names: tuple[str, ...]
    shown: str
    digest: str
    refs: tuple[Ref, ...]
    imported: tuple[str, ...] = ()
    faults: tuple[tuple[int, str], ...] = ()
    probes: tuple[tuple[int, str, Ref], ...] = ()
    value: bool = True
    acts: tuple[Ref, ...] | None = None
    decorators: tuple[Ref, ...] = ()
    writes: tuple[Ref, ...] = ()
    effects: tuple[Ref, ...] = ()
    calls: tuple[Ref, ...] = ()
    handed: tuple[Ref, ...] = ()
    main: bool = False


@dataclass(frozen=True)
class Table:
    """The symbols of one module.

    Attributes:
        units: its statements.
        bound: name to the units that bind it, by number.
        imports: name to what module-level imports bind it to.
        imported: modules that it imports when it is imported itself.
        faults: (line, words) of what makes the whole module impossible to follow.
    """

    units: tuple[Unit, ...] = ()
    bound: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    imports: Mapping[str, tuple[Import, ...]] = field(default_factory=dict)
    imported: tuple[str, ...] = ()
    faults: tuple[tuple[int, str], ...] = ()

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of(cls, value: Any) -> "Table":
        """From JSON.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it has another shape.
        """
        units = tuple(Unit(**{key: _tuples(part) for key, part in unit.items()}) for unit in value["units"])
        table = cls(
            units,
            {name: tuple(numbers) for name, numbers in value["bound"].items()},
            {name: _tuples(targets) for name, targets in value["imports"].items()},
            tuple(value["imported"]),
            _tuples(value["faults"]),
        )
        table._check_shape()
        return table

    def _check_shape(self) -> None:
        """Refuse what would only fail where it is used."""
        words = [*self.imported, *(unit.digest for unit in self.units), *(unit.shown for unit in self.units)]
        words += [name for unit in self.units for name in (*unit.names, *unit.imported)]
        for unit in self.units:
            for refs in (unit.refs, unit.acts or (), unit.decorators, unit.writes, unit.effects, unit.calls):
                words += [part for ref in (*refs, *unit.handed) for part in _as_ref(ref)]
            words += [what for _, what in unit.faults] + [name for _, name, _ in unit.probes]
        words += [part for targets in self.imports.values() for target in targets for part in target]
        words += [what for _, what in self.faults]
        numbers = [number for found in self.bound.values() for number in found]
        if not all(isinstance(word, str) for word in words):
            raise TypeError("a name is no text")
        if not all(isinstance(number, int) and 0 <= number < len(self.units) for number in numbers):
            raise ValueError("a unit is named that is not there")


def table_of(source: str, module: str, package: bool) -> Table:
    """The symbols of a module.

    Args:
        source: its text.
        module: its dotted name.
        package: whether it is a package's `__init__`.

    Raises:
        SyntaxError: it is no Python.
    """
    tree = ast.parse(source)
    home = module if package else module.rpartition(".")[0]
    faults: list[tuple[int, str]] = []
    body = undocumented(tree.body)
    top = [item for item in body if isinstance(item, ast.Import | ast.ImportFrom)]
    rest = [item for item in body if not isinstance(item, ast.Import | ast.ImportFrom)]
    imports: dict[str, list[Import]] = {}
    for statement in top:
        for name, target in import_targets(statement, home, faults):
            imports.setdefault(name, []).append(target)
    elsewhere = bound_by(rest)
    pure = {name: targets for name, targets in imports.items() if name not in elsewhere}
    for name, targets in imports_within(rest, home, faults).items():
        imports.setdefault(name, []).extend(sorted(targets))
    makers = _Units(pure, home, ast.get_docstring(tree) or "")
    units = [unit for statement in rest for unit in makers.of(statement)]
    bound: dict[str, list[int]] = {}
    for number, unit in enumerate(units):
        for name in unit.names:
            bound.setdefault(name, []).append(number)
    known = {*bound, *imports}
    imported = {part for targets in imports.values() for target in targets for part in _modules(target)}
    return Table(
        tuple(_known_only(unit, known) for unit in units),
        {name: tuple(numbers) for name, numbers in bound.items()},
        {name: tuple(targets) for name, targets in imports.items()},
        tuple(sorted(imported)),
        tuple(faults),
    )


class _Units:
    """Makes the units of one module."""

    def __init__(self, pure: Mapping[str, Sequence[Import]], home: str, doc: str) -> None:
        self._pure, self._home, self._doc = pure, home, doc

    def of(self, statement: ast.stmt) -> Iterator[Unit]:
        """The units of one statement; several for `A, B = 1, 2`, whose names change apart."""
        parts = _apart(statement) if isinstance(statement, ast.Assign) else [statement]
        for part in parts:
            for unit in self._plain(part):
                # A function inside another one is declared, and does nothing at import.
                yield unit if "<locals>" in unit.names[:1] else self._with_effects(unit, part)

    def _with_effects(self, unit: Unit, statement: ast.stmt) -> Unit:
        defines = isinstance(statement, (*FUNCTIONS, ast.ClassDef))
        now, called = Effects(self._walker(), deep=False), Effects(self._walker(), deep=True)
        now.visit(statement)
        if defines:
            called.visit(statement)
        handed = handed_over(self._walker(), statement) if isinstance(statement, ast.Expr) else set()
        return replace(
            unit,
            writes=tuple(sorted(called.writes)),
            effects=tuple(sorted(now.writes)),
            calls=tuple(sorted(now.calls)),
            handed=tuple(sorted(handed)),
        )

    def _plain(self, statement: ast.stmt) -> Iterator[Unit]:
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            yield self._definition(statement)
            if not isinstance(statement, ast.ClassDef):
                yield from self._declared_inside(statement)
        elif isinstance(statement, ast.Assign):
            names = bound_by([statement])
            yield self._unit(statement, sorted(names), None if names else self._acted_on([statement]))
        elif isinstance(statement, BLOCKS):
            main = isinstance(statement, ast.If) and _only_started(statement)
            acts = self._acted_on([statement])
            yield self._unit(statement, sorted(bound_by([statement])), acts or None, main)
        elif isinstance(statement, ast.Expr):
            if any(isinstance(node, ast.Call) for node in ast.walk(statement)):
                yield self._unit(statement, (), self._acted_on([statement]))
        elif isinstance(statement, ast.AugAssign | ast.Delete):
            yield self._unit(statement, sorted(bound_by([statement])), self._acted_on([statement]) or None)
        else:
            # `C.x: int = 1` binds no name; what it changes is among its effects.
            yield self._unit(statement, sorted(bound_by([statement])), None)

    def _walker(self) -> Walker:
        return Walker(self._pure, self._home, self._doc)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Unit:
        walker = self._walker()
        walker.visit(node)
        decorators = [root_of(walker, item) for item in node.decorator_list]
        return _made(
            walker, (node.name,), node.name, value=False, decorators=[ref for ref in decorators if ref]
        )

    def _unit(
        self, node: ast.stmt, names: Sequence[str], acts: Sequence[Ref] | None, main: bool = False
    ) -> Unit:
        walker = self._walker()
        walker.visit(node)
        shown = names[0] if names else " ".join(ast.unparse(node).split())[:SHOWN]
        return _made(walker, names, shown, acts=acts, main=main)

    def _acted_on(self, statements: Sequence[ast.stmt]) -> list[Ref]:
        """What the calls, subscripts and attributes of statements change, functions in them left out."""
        found: list[Ref] = []
        walker = self._walker()
        todo: list[ast.AST] = list(statements)
        while todo:
            node = todo.pop()
            if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
                continue
            reached: ast.expr | None = None
            if isinstance(node, ast.Call):
                reached = node.func
            elif isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
                reached = node.value
            if reached is not None and (ref := root_of(walker, reached)):
                found.append(ref)
            todo += ast.iter_child_nodes(node)
        return found

    def _declared_inside(self, outer: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Unit]:
        for node in outer.body:
            if isinstance(node, FUNCTIONS):
                walker = self._walker()
                names = {walker.canonical(item) for item in node.decorator_list}
                if names & DECLARING:
                    yield self._closure(outer, node)

    def _closure(
        self, outer: ast.FunctionDef | ast.AsyncFunctionDef, inner: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> Unit:
        """A function with what it captures: statements of the outer one, and classes of its arguments."""
        walker = self._walker()
        body = undocumented(outer.body)
        arguments = [*outer.args.posonlyargs, *outer.args.args, *outer.args.kwonlyargs]
        names = {argument.arg for argument in arguments} | bound_by(body)
        walker.scopes.append((walker.scope(names, body), False))
        walker.function(inner, inner.name)
        left = [node for node in body if node is not inner and not isinstance(node, ast.Return)]
        while taken := [node for node in left if bound_by([node]) & walker.outermost]:
            left = [node for node in left if node not in taken]
            for node in taken:
                walker.visit(node)
        for argument in arguments:
            if argument.arg in walker.outermost:
                # Its value enters by the spec; what its methods do is code.
                walker.annotation(argument.annotation)
        return _made(walker, (f"{outer.name}.<locals>.{inner.name}",), inner.name, value=False)


def _made(
    walker: Walker,
    names: Sequence[str],
    shown: str,
    value: bool = True,
    acts: Sequence[Ref] | None = None,
    decorators: Sequence[Ref] = (),
    main: bool = False,
) -> Unit:
    return Unit(
        names=tuple(names),
        shown=shown,
        digest=hashlib.sha256("\0".join(walker.tokens).encode()).hexdigest()[:DIGITS],
        refs=tuple(sorted(walker.refs)),
        imported=tuple(sorted(walker.imported)),
        faults=tuple(walker.faults),
        probes=tuple(walker.probes),
        value=value,
        acts=None if acts is None else tuple(acts),
        decorators=tuple(decorators),
        main=main,
    )


def _apart(node: ast.Assign) -> list[ast.Assign]:
    target = node.targets[0]
    if (
        len(node.targets) == 1
        and isinstance(target, ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        and len(target.elts) == len(node.value.elts)
        and not any(isinstance(item, ast.Starred) for item in (*target.elts, *node.value.elts))
    ):
        pairs = zip(target.elts, node.value.elts, strict=True)
        return [ast.Assign(targets=[name], value=value, lineno=node.lineno) for name, value in pairs]
    return [node]


def _only_started(statement: ast.If) -> bool:
    """Whether it is `if __name__ == "__main__":` and nothing for whoever imports the module."""
    test = statement.test
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return not statement.orelse and any(
        isinstance(part, ast.Compare)
        and [type(op) for op in part.ops] == [ast.Eq]
        and {ast.unparse(side) for side in (part.left, *part.comparators)} == {"__name__", "'__main__'"}
        for part in parts
    )


def _modules(target: Import) -> tuple[str, ...]:
    """Modules that an import loads: the one it names, and what it takes from it where that is a module."""
    module, name = target
    return (module, f"{module}.{name}") if name else (module,)


def _known_only(unit: Unit, known: set[str]) -> Unit:
    """Without references to builtins, and without attributes of what is no import."""
    parts = {name: getattr(unit, name) for name in ("refs", "writes", "effects", "calls", "handed")}
    kept: dict[str, Any] = {
        name: tuple(r for r in refs if r[0] or r[1] in known) for name, refs in parts.items()
    }
    return replace(unit, **kept)


def _as_ref(ref: Any) -> Ref:
    if not isinstance(ref, tuple) or len(ref) < 1:
        raise TypeError("no reference")
    return ref


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
