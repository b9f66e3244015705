"""Code versions: what an asset's output depends on in this repository, as one hash.

The fingerprint of an asset covers the normalised syntax trees of its module and of every first-party module
that one imports, directly or through others (comments, docstrings, formatting and the order of imports do not
count), its frozen spec by value, and the vendored data those modules read. Modules started as servers
are not imported by whoever starts them, so an asset names them as `runs`.

Left out on purpose, because they move content without altering it: `NEUTRAL` below. Stage values
enter through the spec, by value, and not through the module that declares all of them.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import asdict, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from env_service.canonical import canonical_json, sha256_file, sha256_hex
from env_service.errors import GeoError

ROOT = Path(__file__).resolve().parents[2]
FIRST_PARTY = ("env_service", "geo_assets", "resources", "sensors")
NEUTRAL = (
    "env_service.errors",
    "geo_assets.cli",
    "geo_assets.config",
    "geo_assets.definitions",
    "geo_assets.lineage.assets",
    "geo_assets.lineage.checks",
    "geo_assets.lineage.fingerprint",
    "geo_assets.lineage.folders",
    "resources.processes",
)
DATA_OF = {"env_service.geography": "env_service/data"}
DYNAMIC = {"__import__", "import_module", "exec", "eval"}
LENGTH = 32


class UnfollowableCode(GeoError):
    """First-party code that imports or runs names static analysis cannot follow."""


def code_version(
    modules: Iterable[str], spec: Any = None, runs: Iterable[str] = (), extra: Any = None
) -> str:
    """Fingerprint of an asset.

    Args:
        modules: dotted names of the modules that compute it.
        spec: its frozen spec (dataclass or JSON-like value).
        runs: dotted names of modules it starts as servers or scripts.
        extra: further declared inputs, JSON-like.

    Returns:
        32 hexadecimal digits.

    Raises:
        UnfollowableCode: the code uses dynamic imports.
        GeoError: a module is not found.
    """
    parts: dict[str, Any] = {name: _tree_hash(name) for name in closure([*modules, *runs])}
    data = {folder: _folder_hash(folder) for name, folder in DATA_OF.items() if name in parts}
    value = asdict(spec) if is_dataclass(spec) and not isinstance(spec, type) else spec
    body = {"modules": parts, "data": data, "spec": value, "extra": extra}
    return sha256_hex(canonical_json(body))[:LENGTH]


def closure(modules: Iterable[str]) -> list[str]:
    """First-party modules that `modules` import, themselves included, sorted, without the neutral ones."""
    seen: set[str] = set()
    todo = list(modules)
    while todo:
        name = todo.pop()
        if name in seen or _neutral(name):
            continue
        seen.add(name)
        todo.extend(imports_of(name))
    return sorted(seen)


@cache
def imports_of(module: str) -> tuple[str, ...]:
    """First-party modules that one module imports anywhere in its text, its packages' `__init__` included."""
    found: set[str] = set()
    for node in ast.walk(_parse(module)):
        if isinstance(node, ast.Call):
            _refuse_dynamic(node, module)
        found.update(_named(node, module))
    packages = {
        name.rsplit(".", depth)[0] for name in (*found, module) for depth in range(1, name.count(".") + 1)
    }
    return tuple(sorted(name for name in found | packages if name != module))


def _named(node: ast.AST, module: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] in FIRST_PARTY:
                yield alias.name
    elif isinstance(node, ast.ImportFrom):
        base = _absolute(node, module)
        if base.split(".")[0] not in FIRST_PARTY:
            return
        yield base
        for alias in node.names:
            if _path(f"{base}.{alias.name}") is not None:
                yield f"{base}.{alias.name}"


def _absolute(node: ast.ImportFrom, module: str) -> str:
    if not node.level:
        return node.module or ""
    path = _path(module)
    package = module.split(".") if path is not None and path.name == "__init__.py" else module.split(".")[:-1]
    base = package[: len(package) - (node.level - 1)]
    return ".".join([*base, node.module] if node.module else base)


def _refuse_dynamic(node: ast.Call, module: str) -> None:
    target = node.func
    name = getattr(target, "id", "") or getattr(target, "attr", "")
    # A method that happens to be called eval is fine (a model's, say); the built-in is not.
    if name in DYNAMIC and (isinstance(target, ast.Name) or name == "import_module"):
        raise UnfollowableCode(
            f"{module}:{node.lineno} calls {name}, which a code version cannot follow",
            "Import the module by name, or start it as a server and list it in the asset's `runs`",
        )


@cache
def _tree_hash(module: str) -> str:
    tree = _Normalise().visit(_parse(module))
    return sha256_hex(ast.dump(tree, annotate_fields=False).encode())


def _parse(module: str) -> ast.Module:
    path = _path(module)
    if path is None:
        raise GeoError(f"No module {module} stands under {ROOT.name}, so its code version cannot be taken")
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _path(module: str) -> Path | None:
    stem = ROOT.joinpath(*module.split("."))
    for path in (stem.with_suffix(".py"), stem / "__init__.py"):
        if path.is_file():
            return path
    return None


def _neutral(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in NEUTRAL)


@cache
def _folder_hash(folder: str) -> str:
    files = sorted(p for p in (ROOT / folder).iterdir() if p.is_file() and p.suffix not in {".py", ".md"})
    return sha256_hex(canonical_json([[p.name, sha256_file(p)] for p in files]))


class _Normalise(ast.NodeTransformer):
    """Drops docstrings and puts imports in one order, so that only what runs is left."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._body(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._body(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._body(node)

    def _body(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        body = node.body
        first = body[0].value if body and isinstance(body[0], ast.Expr) else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            body = body[1:]
        imports = [item for item in body if isinstance(item, ast.Import | ast.ImportFrom)]
        for item in imports:
            item.names.sort(key=lambda alias: (alias.name, alias.asname or ""))
        imports.sort(key=lambda item: ast.dump(item))
        node.body = [*imports, *(i for i in body if not isinstance(i, ast.Import | ast.ImportFrom))]
        result: ast.AST = node
        return result
