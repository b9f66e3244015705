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
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from env_service.canonical import canonical_json, sha256_file, sha256_hex
from env_service.errors import GeoError

ROOT = Path(__file__).resolve().parents[2]
FIRST_PARTY = ("env_service", "geo_assets", "resources", "sensors")
NEUTRAL = (
    "env_service.errors",
    "env_service.server.web",
    "geo_assets.cli",
    "geo_assets.config",
    "geo_assets.definitions",
    "geo_assets.lineage.assets",
    "geo_assets.lineage.checks",
    "geo_assets.lineage.faults",
    "geo_assets.lineage.fingerprint",
    "geo_assets.lineage.folders",
    "geo_assets.lineage.orphans",
    "geo_assets.lineage.swapping",
    "resources.compute",
    "resources.processes",
)
DATA_OF = {
    "env_service.geography": "env_service/data",
    "geo_assets.sweeps.protocol_tools": "geo_assets/sweeps/prompts/tools",
    "geo_assets.sweeps.protocol_json": "geo_assets/sweeps/prompts/json",
    "geo_assets.sweeps.sight": "geo_assets/sweeps/prompts/swatch",
}
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
    parts: dict[str, Any] = {name: _analyse(name).digest for name in closure([*modules, *runs])}
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


def imports_of(module: str) -> tuple[str, ...]:
    """First-party modules that one module imports anywhere in its text, its packages' `__init__` included.

    Raises:
        UnfollowableCode: it uses dynamic imports.
    """
    return _analyse(module).imports


@dataclass(frozen=True)
class _Module:
    """What one parse of a module gives: its first-party imports and the hash of what it runs."""

    imports: tuple[str, ...]
    digest: str


@cache
def _analyse(module: str) -> _Module:
    path = _path(module)
    if path is None:
        raise GeoError(f"No module {module} stands under {ROOT.name}, so its code version cannot be taken")
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _refuse_dynamic(node, module)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(_named(node, module))
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = _what_runs(node.body)
    packages = {
        name.rsplit(".", depth)[0] for name in (*found, module) for depth in range(1, name.count(".") + 1)
    }
    imports = tuple(sorted(name for name in found | packages if name != module))
    return _Module(imports, sha256_hex(ast.dump(tree, annotate_fields=False).encode()))


def _what_runs(body: list[ast.stmt]) -> list[ast.stmt]:
    """A body without its docstring and with its imports first, in one order."""
    first = body[0].value if body and isinstance(body[0], ast.Expr) else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        body = body[1:]
    imports = [item for item in body if isinstance(item, ast.Import | ast.ImportFrom)]
    for item in imports:
        item.names.sort(key=lambda alias: (alias.name, alias.asname or ""))
    imports.sort(key=ast.dump)
    return [*imports, *(item for item in body if not isinstance(item, ast.Import | ast.ImportFrom))]


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
