"""YAML as `arms.yaml` may use it: maps, lists, strings, numbers and booleans, every fault with its line.

YAML can say much more than arms need: tags that build objects, dates, merges, anchors that hold themselves,
numbers that are none. Each of these is refused where it stands. What is read is therefore always a finite
JSON value, and whatever is wrong with it is one `ArmsFileError` and never a traceback.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import yaml

from env_service.errors import GeoError

MAX_DEPTH = 40
MAX_NODES = 100_000
MAX_BYTES = 1 << 20
PLAIN = {f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "str", "int", "float", "bool", "null")}
TOLD = {
    "tag:yaml.org,2002:timestamp": "a date; put it in quotes",
    "tag:yaml.org,2002:merge": "a merge key (<<), which is not read here; write the fields out",
}


class ArmsFileError(GeoError):
    """`arms.yaml` says something that cannot be; `path` and `line` say where."""

    def __init__(self, path: Path, line: int | None, problem: str, fix: str = "") -> None:
        self.path = path
        self.line = line
        where = path.name if line is None else f"{path.name}:{line}"
        super().__init__(f"{where}: {problem}", fix or f"Correct {path.name}")


def compose(path: Path) -> yaml.Node:
    """The file as a tree that holds only what `plain` can turn into values.

    Raises:
        ArmsFileError: it cannot be read, is no YAML, or says something that arms have no use for.
    """
    return compose_text(text_of(path), path)


def text_of(path: Path) -> str:
    """A file's text.

    Raises:
        ArmsFileError: it cannot be read, is too large or no UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArmsFileError(path, None, f"the file cannot be read ({error.strerror})") from None
    if len(data) > MAX_BYTES:
        raise ArmsFileError(path, None, f"the file has {len(data):,} bytes; {MAX_BYTES:,} are read at most")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ArmsFileError(path, line, f"byte 0x{data[error.start]:02x} is no UTF-8") from None


@lru_cache(maxsize=8)
def compose_text(text: str, path: Path) -> yaml.Node:
    """The tree of a file's text; the graph's definitions ask for the same few files again and again.

    Raises:
        ArmsFileError: see `compose`.
    """
    try:
        _refuse_deep(text, path)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise ArmsFileError(path, line, f"character #x{code:04x} is not allowed") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ArmsFileError(
            path, mark.line + 1 if mark else 1, f"broken YAML: {error.problem or error.context}"
        ) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ArmsFileError(path, 1, f"broken YAML: {error}") from None
    if root is None:
        raise ArmsFileError(path, 1, "the file is empty")
    _Plainness(path).check(cast(yaml.Node, root), ())
    return cast(yaml.Node, root)


def plain(node: yaml.Node) -> Any:
    """The value of a node that `compose` has let through."""
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def mapping(node: yaml.Node, path: Path, what: str) -> dict[str, yaml.Node]:
    """The fields of a mapping.

    Raises:
        ArmsFileError: it is none.
    """
    if not isinstance(node, yaml.MappingNode):
        raise ArmsFileError(path, line_of(node), f"{what} must be a mapping")
    return {str(key.value): value for key, value in node.value}


def sequence(node: yaml.Node | None, path: Path, what: str) -> list[yaml.Node]:
    """The entries of a list.

    Raises:
        ArmsFileError: it is none, or is not there.
    """
    if not isinstance(node, yaml.SequenceNode):
        raise ArmsFileError(path, 1 if node is None else line_of(node), f"{what} must be a list")
    return list(node.value)


def only(found: Mapping[str, yaml.Node], known: set[str], path: Path) -> None:
    """Refuse keys that mean nothing.

    Raises:
        ArmsFileError: names the key and those there are.
    """
    for name, node in found.items():
        if name not in known:
            problem = f"unknown key {name!r}; known are {', '.join(sorted(known))}"
            raise ArmsFileError(path, line_of(node), problem)


def locate(node: yaml.Node | None, where: Sequence[int | str]) -> yaml.Node | None:
    """The node at the end of a path of keys and positions; None where nothing stands there."""
    for step in where:
        if isinstance(node, yaml.MappingNode):
            node = {str(key.value): value for key, value in node.value}.get(str(step))
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
        else:
            return None
    return node


def line_of(node: yaml.Node) -> int:
    """Line of a node, from 1."""
    return int(node.start_mark.line) + 1


class _Plainness:
    """Walks a tree as it would be written out, and refuses whatever is no finite JSON value."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._nodes = 0

    def check(self, node: yaml.Node, above: tuple[yaml.Node, ...]) -> None:
        if any(node is outer for outer in above):
            self._refuse(node, "an alias refers to what holds it")
        self._nodes += 1
        if self._nodes > MAX_NODES or len(above) > MAX_DEPTH:
            self._refuse(node, "aliases make the file too large")
        self._kind(node)
        if isinstance(node, yaml.MappingNode):
            self._keys(node)
            children = [value for _, value in node.value]
        else:
            children = node.value if isinstance(node, yaml.SequenceNode) else []
        for child in children:
            self.check(child, (*above, node))

    def _kind(self, node: yaml.Node) -> None:
        if node.tag not in PLAIN:
            told = TOLD.get(node.tag, f"of a kind that is not read here ({node.tag})")
            self._refuse(node, f"this is {told}")
        if not isinstance(node, yaml.ScalarNode):
            if node.tag.rpartition(":")[2] != ("map" if isinstance(node, yaml.MappingNode) else "seq"):
                self._refuse(node, f"this is no {node.tag.rpartition(':')[2]}")
            return
        try:
            value = plain(node)
            str(value).encode()
        except (ValueError, KeyError, IndexError, OverflowError, yaml.YAMLError):
            self._refuse(node, f"{node.value[:40]!r} is no {node.tag.rpartition(':')[2]}")
        if isinstance(value, float) and not math.isfinite(value):
            self._refuse(node, f"{node.value!r} is no finite number")

    def _keys(self, node: yaml.MappingNode) -> None:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(key, "a key must be a word")
            self._kind(key)
            name = str(key.value)
            if name in seen:
                self._refuse(key, f"the key {name!r} stands here twice, first on line {seen[name]}")
            seen[name] = line_of(key)

    def _refuse(self, node: yaml.Node, problem: str) -> None:
        raise ArmsFileError(self._path, line_of(node), problem)


def _refuse_deep(text: str, path: Path) -> None:
    """The parser counts without recursion; composing a tree recurses, and would run out of stack."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                line = event.start_mark.line + 1
                raise ArmsFileError(path, line, f"more than {MAX_DEPTH} maps and lists within each other")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
