"""From symbols to everything first-party that they reach, resolved across modules.

What a reference resolves to follows Python: through imports, aliases, packages that re-export, and attributes
of modules. Attribute access on a class reaches the whole class, methods and bases included. A module that is
handed around as a value counts whole. Of code that runs at import, what acts on something reached counts:
`REGISTRY["x"] = f`, `register(f)`, a decorator that writes into a registry.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from env_service.canonical import atomic_write, sha256_hex
from env_service.errors import GeoError
from geo_assets.lineage._closures import KeptClosures
from geo_assets.lineage._names import Ref
from geo_assets.lineage.symbols import FORMAT, Table, Unit, table_of

ROOT = Path(__file__).resolve().parents[2]
FIRST_PARTY = ("env_service", "geo_assets", "resources", "sensors")
CACHE = ".geo/symbols.json"
MOST_KEPT = 2000
SELF_MADE = ("__name__", "__file__", "__doc__", "__path__", "__package__", "__spec__", "__all__")

Node = tuple[str, int]
"""A unit: its module and its number there."""


class UnfollowableCode(GeoError):
    """First-party code that finds other code in ways that static analysis cannot follow."""


class Tables:
    """The symbols of all modules below a root, parsed once and kept on disk by the hash of their text.

    Args:
        root: the repository.
        neutral: says of `module` and of `module:symbol` whether it is left out.
    """

    def __init__(self, root: Path, neutral: Callable[[str], bool]) -> None:
        self._root, self._neutral = root, neutral
        self._tables: dict[str, Table | None] = {}
        self._edges: dict[Node, frozenset[Node]] = {}
        self._known: dict[str, object] | None = None
        self._used: set[str] = set()
        self._new = False
        self._closures = KeptClosures(root, FIRST_PARTY)
        self._executed = cache(self._executed_by)
        self._acting = cache(self._acting_in)
        self._written = cache(self._written_at_import)
        self._writing = cache(self._written_when_called)

    def closure(self, targets: Iterable[str], apart: Iterable[str] = ()) -> dict[str, str]:
        """Everything reached from targets (`module` or `module:symbol`), as `module:symbol` to digest.

        Args:
            apart: symbols or modules that are not followed, because they enter a version in another way.

        Raises:
            UnfollowableCode: something reached cannot be followed.
            GeoError: a target does not exist.
        """
        targets, apart = list(targets), list(apart)
        known = self._closures.get(targets, apart)
        if known is None:
            known = self._follow(targets, frozenset(apart))
            self._closures.put(targets, apart, known)
            self._keep()
        return known

    def keep(self) -> None:
        """Write to disk what was followed; once, when all that is wanted has been asked."""
        self._closures.keep()

    def _follow(self, targets: Iterable[str], barred: frozenset[str]) -> dict[str, str]:
        reached: set[Node] = set()
        todo = [node for target in targets for node in self._target(target)]
        while todo:
            while todo:
                node = todo.pop()
                if node not in reached and not self._barred(node, barred):
                    reached.add(node)
                    todo.extend(self.edges(node))
            # Asked after every round, whatever came last: what is reached must not depend on the order.
            todo.extend(self._acting_on(reached, barred))
        found: dict[str, list[str]] = {}
        # In the order of the text: of two that bind one name, the later one holds.
        for module, number in sorted(reached):
            unit = self._unit((module, number))
            name = unit.names[0] if unit.names else f"({unit.shown})"
            found.setdefault(f"{module}:{name}", []).append(unit.digest)
        return {name: "+".join(digests) for name, digests in sorted(found.items())}

    def table(self, module: str) -> Table | None:
        """The symbols of a module; None where there is no such file."""
        if module not in self._tables:
            path = self._path(module)
            self._tables[module] = None if path is None else self._read(module, path)
        return self._tables[module]

    def edges(self, node: Node) -> frozenset[Node]:
        """The units that one unit refers to.

        Raises:
            UnfollowableCode: what it does cannot be followed.
        """
        if node not in self._edges:
            module, unit = node[0], self._unit(node)
            self._refuse(module, unit)
            self._edges[node] = frozenset(
                found for ref in unit.refs for found in self._resolve(ref, module) if found != node
            )
        return self._edges[node]

    def _barred(self, node: Node, barred: frozenset[str]) -> bool:
        if node[0] in barred:
            return True
        return bool(barred) and any(f"{node[0]}:{name}" in barred for name in self._unit(node).names)

    def _unit(self, node: Node) -> Unit:
        table = self.table(node[0])
        assert table is not None
        return table.units[node[1]]

    def _target(self, target: str) -> list[Node]:
        module, _, symbol = target.partition(":")
        table = self.table(module)
        if table is None:
            raise GeoError(f"No module {module} stands under {self._root.name}, so it has no code version")
        self._refuse_module(module, table)
        if not symbol:
            started = self.table(f"{module}.__main__")
            more = self._whole(f"{module}.__main__", True) if started is not None else []
            return [*self._whole(module, True), *more]
        if symbol not in table.bound and "<locals>" not in symbol:
            symbol = symbol.split(".")[0]
        found = self._resolve(("", symbol), module) if symbol in {*table.bound, *table.imports} else []
        if not found:
            raise GeoError(f"Module {module} has no symbol {symbol}, so it has no code version")
        return list(found)

    def _whole(self, module: str, started: bool = False) -> list[Node]:
        """A module with all that it runs; what stands under `if __name__` only where it is started."""
        if self._neutral(module):
            return []
        table = self.table(module)
        if table is None:
            return []
        return [
            (module, number)
            for number, unit in enumerate(table.units)
            if (started or not unit.main)
            # A statement that binds several names counts as long as one of them does.
            and not (unit.names and all(self._neutral(f"{module}:{name}") for name in unit.names))
        ]

    def _resolve(self, ref: Ref, module: str) -> list[Node]:
        """The units that a reference standing in `module` means."""
        return list(self._in_module(module, ref[1:], module) if not ref[0] else self._of(ref, module))

    def _of(self, ref: Ref, module: str) -> Iterator[Node]:
        """What follows from an import: a module, and a name in it."""
        target, rest = ref[0], ref[1:]
        if target.split(".")[0] not in FIRST_PARTY or self._neutral(target):
            return
        if self._path(target) is None and "." in target:
            raise UnfollowableCode(f"{module} imports {target}, which does not stand under {self._root.name}")
        if not rest:
            yield from self._whole(target)
        elif self._has(target, rest[0]):
            yield from self._in_module(target, rest, module)
        elif self._path(f"{target}.{rest[0]}") is not None:
            yield from self._of((f"{target}.{rest[0]}", *rest[1:]), module)
        elif rest[0] not in SELF_MADE and self._path(target) is not None:
            raise UnfollowableCode(
                f"{module} takes {rest[0]} from {target}, where nothing of that name is bound",
                "Import it from where it is defined",
            )

    def _has(self, module: str, name: str) -> bool:
        table = self.table(module)
        return table is not None and (
            name in table.bound or name in table.imports or "__getattr__" in table.bound
        )

    def _in_module(self, module: str, rest: Ref, asking: str) -> Iterator[Node]:
        name = rest[0]
        table = self.table(module)
        if table is None or self._neutral(module) or self._neutral(f"{module}:{name}"):
            return
        self._refuse_module(module, table)
        yield from ((module, number) for number in table.bound.get(name, ()))
        for target, symbol in table.imports.get(name, ()):
            yield from self._of((target, *([symbol] if symbol else []), *rest[1:]), asking)
        if name not in table.bound and name not in table.imports:
            yield from ((module, number) for number in table.bound.get("__getattr__", ()))

    def _acting_on(self, reached: set[Node], barred: frozenset[str]) -> list[Node]:
        """Units that run at import and act on something reached."""
        found: list[Node] = []
        modules = {module for module, _ in reached}
        loaded = modules.union(*(self._unit(node).imported for node in reached))
        for module in sorted(frozenset().union(*(self._executed(module) for module in loaded))):
            for node in self._acting(module):
                done = node in reached or self._barred(node, barred)
                if not done and self._acts(node, self._unit(node), reached, module in modules):
                    found.append(node)
        return found

    def _acting_in(self, module: str) -> tuple[Node, ...]:
        """The units of a module that may act on others when it is imported."""
        table = self.table(module)
        return tuple(
            (module, number)
            for number, unit in enumerate(table.units if table else ())
            if not unit.main
            and (
                unit.acts is not None
                or any(self._resolve(ref, module) for ref in (*unit.decorators, *unit.effects, *unit.calls))
            )
        )

    def _acts(self, node: Node, unit: Unit, reached: set[Node], runs: bool) -> bool:
        for ref in unit.acts or ():
            owned = self._resolve(ref, node[0])
            if not owned:
                # Something outside: it counts for whoever runs this module for its own sake.
                if runs and not (not ref[0] and self._has(node[0], ref[1])):
                    return True
            elif any(item in reached for item in self._changed_by(owned)):
                return True
        if any(item in reached and item != node for item in self._written(node)):
            return True
        decorated = [self._resolve(ref, node[0]) for ref in unit.decorators]
        return any(
            item in reached and item != node and self._unit(item).value
            for owned in decorated
            for item in self._changed_by(owned)
        )

    def _written_at_import(self, node: Node) -> frozenset[Node]:
        """What a unit writes to when its module is imported, itself or through what it calls."""
        unit, module = self._unit(node), node[0]
        found = {item for ref in unit.effects for item in self._resolve(ref, module)}
        found |= {
            item for ref in unit.handed for item in self._resolve(ref, module) if self._unit(item).value
        }
        for ref in unit.calls:
            for item in self._resolve(ref, module):
                found |= self._writing(item)
                if len(ref) > 2 and ref[-1] == "register" and "register" not in self._unit(item).names:
                    found.add(item)  # as `functools.singledispatch` has it
        return frozenset(found)

    def _written_when_called(self, node: Node) -> frozenset[Node]:
        """What calling a function or class may write to, through whatever it refers to."""
        seen: set[Node] = set()
        found: set[Node] = set()
        todo = [node]
        while todo:
            item = todo.pop()
            unit = self._unit(item)
            if item in seen or unit.value:
                continue
            seen.add(item)
            try:
                found |= {other for ref in unit.writes for other in self._resolve(ref, item[0])}
                todo += self.edges(item)
            except UnfollowableCode:
                # It is refused where an asset reaches it, and not by what merely calls it at import.
                continue
        return frozenset(found)

    def _changed_by(self, owned: list[Node]) -> set[Node]:
        """What acting on these may change: themselves, and values that a function of theirs refers to."""
        found = set(owned)
        for item in owned:
            if not self._unit(item).value:
                found |= {other for other in self.edges(item) if self._unit(other).value}
        return found

    def _executed_by(self, module: str) -> frozenset[str]:
        """First-party modules that run when one is imported, itself included."""
        seen: set[str] = set()
        todo = [module]
        while todo:
            name = todo.pop()
            table = None if name in seen or self._neutral(name) else self.table(name)
            if name.split(".")[0] not in FIRST_PARTY or table is None:
                continue
            seen.add(name)
            todo.extend(table.imported)
            todo.extend(name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1))
        return frozenset(seen)

    def _refuse_module(self, module: str, table: Table) -> None:
        for line, what in table.faults:
            raise _refusal(module, line, what)

    def _refuse(self, module: str, unit: Unit) -> None:
        for line, what in unit.faults:
            raise _refusal(module, line, what)
        for line, function, ref in unit.probes:
            if self._is_module(ref, module):
                raise _refusal(module, line, f"calls {function} on a module")

    def _is_module(self, ref: Ref, module: str) -> bool:
        if ref[0]:
            name = ".".join(ref)
            return name.split(".")[0] in FIRST_PARTY and self._path(name) is not None
        table = self.table(module)
        targets = table.imports.get(ref[1], ()) if table and len(ref) == 2 else ()
        return any(
            target.split(".")[0] in FIRST_PARTY
            and self._path(f"{target}.{name}" if name else target) is not None
            for target, name in targets
        )

    def _path(self, module: str) -> Path | None:
        stem = self._root.joinpath(*module.split("."))
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.is_file():
                return path
        return None

    def _read(self, module: str, path: Path) -> Table:
        content = path.read_bytes()
        text = content.decode()
        self._closures.parsed(path, sha256_hex(content))
        package = path.name == "__init__.py"
        key = sha256_hex(f"{FORMAT}\0{module}\0{package}\0{text}".encode())
        self._used.add(key)
        # Another shape than expected is as good as nothing.
        with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            if (known := self._cached().get(key)) is not None:
                return Table.of(known)
        table = table_of(text, module, package)
        self._cached()[key] = table.plain()
        self._new = True
        return table

    def _cached(self) -> dict[str, object]:
        if self._known is None:
            try:
                self._known = dict(json.loads((self._root / CACHE).read_bytes()))
            except (OSError, ValueError, TypeError, RecursionError):
                self._known = {}
        return self._known

    def _keep(self) -> None:
        """Write what was parsed anew; a folder that cannot be written to costs time and nothing else."""
        if not self._new:
            return
        self._new = False
        kept = self._cached()
        if len(kept) > MOST_KEPT:
            kept = {key: kept[key] for key in self._used}
        try:
            atomic_write(self._root / CACHE, json.dumps(kept).encode())
        except OSError:
            return


def _refusal(module: str, line: int, what: str) -> UnfollowableCode:
    return UnfollowableCode(
        f"{module}:{line} {what}, which a code version cannot follow",
        "Import what is needed by name, or start the module as a server and list it in the asset's `runs`",
    )
