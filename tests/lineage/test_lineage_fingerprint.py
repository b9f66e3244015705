"""Code versions: what changes them and what does not, symbol by symbol, on the hard cases of the language."""

# Modules are written on one line each, however long.
# ruff: noqa: E501

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from geo_assets.config.settings import PoolSpec
from geo_assets.lineage import references
from geo_assets.lineage.fingerprint import code_version, fingerprint

Write = Callable[..., None]
TARGET = "geo_assets.stage:run"


def _version(target: str = TARGET, **more: object) -> str:
    return code_version([target], **more)  # type: ignore[arg-type]


def _symbols(target: str = TARGET) -> set[str]:
    return {name.removeprefix("geo_assets.") for name in fingerprint([target]).symbols}


HELPER = """\
    import json
    import math


    def twice(x):
        return x * 2


    def mean(x):
        return sum(x)
"""
STAGE = "from geo_assets.helper import twice\n\ndef run():\n    return twice(2)\n"


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring."""\nimport json\nimport math\n\n\ndef twice(x):\n    return x * 2\n',
        "import math\nimport json\n\n\ndef twice(x):\n    # why\n    return x * 2\n",
        'import json\nimport math\n\n\ndef twice(x):\n    """Twice x."""\n    return (x *\n            2)\n',
        "from typing import Any\n\n\ndef twice(x: Any) -> 'Any':\n    return x * 2\n",
        "def mean(x):\n    return 7\n\n\nOTHER = 1\n\n\ndef twice(x):\n    return x * 2\n",
    ],
    ids=["docstring", "import order and comment", "formatting", "annotations", "other symbols of the module"],
)
def test_what_does_not_run_does_not_count(write: Write, text: str) -> None:
    write(stage=STAGE, helper=HELPER)
    before = _version()
    write(helper=text)
    assert _version() == before


def test_a_change_behind_an_import_counts(write: Write) -> None:
    write(stage=STAGE, helper=HELPER)
    before = _version()
    write(helper=HELPER.replace("x * 2", "x * 3"))
    assert _version() != before


def test_a_module_started_as_a_server_counts_whole(write: Write) -> None:
    write(
        stage=STAGE,
        helper=HELPER,
        server="def main():\n    return 1\n\nif __name__ == '__main__':\n    main()\n",
    )
    before = _version(runs=["geo_assets.server"])
    assert before != _version()
    write(server="def main():\n    return 1\n\nif __name__ == '__main__':\n    main() or 2\n")
    assert _version(runs=["geo_assets.server"]) != before


# Every case: the modules, and what must be reached from `stage:run` beside itself, exactly.
CASES: dict[str, tuple[dict[str, str], set[str]]] = {
    "methods count with their class": (
        {
            "stage": "from geo_assets.m import C\ndef run():\n    return C.make().go()\n",
            "m": "def used(): ...\ndef idle(): return 1\nclass C:\n    @classmethod\n    def make(cls): return cls()\n"
            "    def go(self): return used()\n",
        },
        {"m:C", "m:used"},
    ),
    "decorators": (
        {
            "stage": "from geo_assets.m import logged\n@logged(times=3)\ndef run(): return 1\n",
            "m": "def wrap(f): return f\ndef logged(times):\n    return wrap\n",
        },
        {"m:logged", "m:wrap"},
    ),
    "dataclass defaults and field types": (
        {
            "stage": "from geo_assets.m import Spec\ndef run(): return Spec()\n",
            "m": "from dataclasses import dataclass, field\nLIMIT = 3\ndef fresh(): return []\nclass Inner: ...\n"
            "@dataclass\nclass Spec:\n    limit: int = LIMIT\n    rows: list = field(default_factory=fresh)\n"
            "    inner: Inner | None = None\nIDLE = 4\n",
        },
        {"m:Spec", "m:LIMIT", "m:fresh", "m:Inner"},
    ),
    "constants, each of one line by itself": (
        {
            "stage": "from geo_assets.m import ONE\ndef run(): return ONE\n",
            "m": "BASE = 1\nONE, TWO = BASE, 2\n",
        },
        {"m:ONE", "m:BASE"},
    ),
    "aliases": (
        {
            "stage": "import geo_assets.m as other\nfrom geo_assets.m import f as g\ndef run(): return g, other.h\n",
            "m": "def f(): ...\ndef h(): ...\ndef i(): ...\n",
        },
        {"m:f", "m:h"},
    ),
    "chains of attributes through packages": (
        {"stage": "import geo_assets.m\ndef run(): return geo_assets.m.f()\n", "m": "def f(): ...\ndef g(): ...\n"},
        {"m:f"},
    ),
    "a submodule taken from its package": (
        {"stage": "from geo_assets import m\ndef run(): return m.f()\n", "m": "def f(): ...\ndef g(): ...\n"},
        {"m:f"},
    ),
    "relative imports, and names handed on by a package": (
        {
            "stage": "from .sub import f\ndef run(): return f()\n",
            "sub/a": "from ..m import h\ndef f(): return h()\n",
            "sub/__init__": "from .a import f\n",
            "m": "def h(): ...\n",
        },
        {"sub.a:f", "m:h"},
    ),
    "imports inside a function": (
        {
            "stage": "def run():\n    from geo_assets.m import f\n    import geo_assets.n as n\n    return f(), n.g\n",
            "m": "def f(): ...\n",
            "n": "def g(): ...\ndef h(): ...\n",
        },
        {"m:f", "n:g"},
    ),
    "conditional definitions count whole": (
        {
            "stage": "from geo_assets.m import f\ndef run(): return f()\n",
            "m": "import sys\ndef slow(): ...\nif sys.platform == 'linux':\n    def f(): return 1\nelse:\n"
            "    def f(): return slow()\n",
        },
        {"m:f", "m:slow"},
    ),
    "conditional imports count on both branches": (
        {
            "stage": "try:\n    from geo_assets.m import f\nexcept ImportError:\n    from geo_assets.n import f\n"
            "def run(): return f()\n",
            "m": "def f(): ...\n",
            "n": "def f(): ...\n",
        },
        {"stage:f", "m:f", "n:f"},
    ),
    "recursion": (
        {
            "stage": "from geo_assets.m import even\ndef run(): return even(4)\n",
            "m": "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)\n",
        },
        {"m:even", "m:odd"},
    ),
    "nested functions, lambdas and comprehensions": (
        {
            "stage": "from geo_assets.m import f, g, h, x\n"
            "def run():\n    def inner(x):\n        return f(x)\n    return [inner(h) for h in map(lambda x: g(x), [])]\n",
            "m": "def f(x): ...\ndef g(x): ...\ndef h(): ...\nx = 1\n",
        },
        {"m:f", "m:g"},
    ),
    "functools.partial": (
        {
            "stage": "from functools import partial\nfrom geo_assets.m import f, K\nshort = partial(f, K)\n"
            "def run(): return short()\n",
            "m": "def f(k): ...\nK = 1\n",
        },
        {"stage:short", "m:f", "m:K"},
    ),
    "inheritance and keywords of classes": (
        {
            "stage": "from geo_assets.m import Child\ndef run(): return Child()\n",
            "m": "from geo_assets.n import Base\nclass Meta(type): ...\nclass Child(Base, metaclass=Meta): ...\n"
            "class Sibling(Base): ...\n",
            "n": "def used(): ...\nclass Base:\n    def go(self): return used()\n",
        },
        {"m:Child", "m:Meta", "n:Base", "n:used"},
    ),
    "types that only annotate do not count": (
        {
            "stage": "from typing import TYPE_CHECKING, cast\nfrom geo_assets.m import A, C, D\nif TYPE_CHECKING:\n"
            "    from geo_assets.m import B\ndef run(a: A, b: 'B') -> C:\n    x: A = a\n    return cast(D, x)\n",
            "m": "class A: ...\nclass B: ...\nclass C: ...\nclass D: ...\n",
        },
        set(),
    ),
    "annotations under a decorator that may read them do": (
        {
            "stage": "from other import app\nfrom geo_assets.m import A\n@app.get('/')\ndef run(a: A): ...\n",
            "m": "class A: ...\n",
        },
        {"m:A"},
    ),
    "what writes into a registry when it is imported counts with the registry": (
        {
            "stage": "from geo_assets import plugins\nfrom geo_assets.m import TOOLS, LIST\n"
            "def run(): return TOOLS, LIST\n",
            "m": "TOOLS = {}\nLIST = []\nOTHER = {}\ndef tool(name):\n    def mark(f):\n        TOOLS[name] = f\n"
            "        return f\n    return mark\ndef other(f):\n    OTHER[f] = f\n    return f\n",
            "plugins": "from geo_assets.m import tool, other, TOOLS, LIST\ndef helper(): ...\n@tool('look')\n"
            "def look(): return helper()\n@other\ndef idle(): ...\nLIST.append(helper)\nTOOLS['x'] = helper\n",
        },
        {
            "m:TOOLS", "m:LIST", "m:tool", "plugins:look", "plugins:helper",
            "plugins:(LIST.append(helper))", "plugins:(TOOLS['x'] = helper)",
        },
    ),
    "a registry of a module that nobody imports does not": (
        {
            "stage": "from geo_assets.m import TOOLS\ndef run(): return TOOLS\n",
            "m": "TOOLS = {}\n",
            "plugins": "from geo_assets.m import TOOLS\nTOOLS['x'] = 1\n",
        },
        {"m:TOOLS"},
    ),
    "a module handed around as a value counts whole": (
        {"stage": "from geo_assets import m\ndef run(): return str(m)\n", "m": "A = 1\nB = 2\n"},
        {"m:A", "m:B"},
    ),
    "local names hide those of the module": (
        {
            "stage": "from geo_assets.m import f, g\ndef run(f):\n    g = 1\n    return f(g)\n",
            "m": "def f(): ...\ndef g(): ...\n",
        },
        set(),
    ),
    "globals that a function assigns": (
        {"stage": "STATE = None\ndef run():\n    global STATE\n    STATE = 1\n    return STATE\n"},
        {"stage:STATE"},
    ),
    "names that are bound again count in every binding": (
        {"stage": "A = 1\nB = 2\nTOTAL = A\nTOTAL += B\ndef run(): return TOTAL\n"},
        {"stage:TOTAL", "stage:A", "stage:B"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_reached(write: Write, case: str) -> None:
    modules, reached = CASES[case]
    write(**modules)
    assert _symbols() == {"stage:run", *reached}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_change_to_anything_reached_counts_and_to_anything_else_does_not(write: Write, case: str) -> None:
    modules, reached = CASES[case]
    write(**modules)
    before = _version()
    for name in modules:
        if name != "stage" and "__init__" not in name:
            write(**{name: modules[name] + "\n\ndef added_later(): return 1\n"})
            whole = case == "a module handed around as a value counts whole"
            assert (_version() != before) == whole, name
            write(**{name: modules[name]})
    for symbol in reached:
        module, _, name = symbol.partition(":")
        if "(" in name or symbol == "plugins:look":  # what is registered is the function, not its name
            continue
        key = module.replace(".", "/")
        write(**{key: modules[key] + f"\n\n{name} = 'something else'\n"})
        assert _version() != before, symbol
        write(**{key: modules[key]})
    assert _version() == before


def test_a_change_of_what_an_alias_stands_for_counts_and_of_its_name_does_not(write: Write) -> None:
    write(stage="import numpy as np\ndef run(): return np.mean\n")
    before = _version()
    write(stage="import numpy as numbers\ndef run(): return numbers.mean\n")
    assert _version() == before
    write(stage="import cupy as np\ndef run(): return np.mean\n")
    assert _version() != before


def test_an_asset_declared_in_a_function_counts_with_what_it_captures(write: Write) -> None:
    text = """\
    from geo_assets.lineage.assets import geo_asset
    from geo_assets.m import Arm, f, words

    def make(arm: Arm):
        name = words(arm)
        factor = f(2)
        half = factor / 2

        @geo_asset(name=name, kinds={"a"})
        def run(stage):
            return arm.play(half)

        return run
    """
    write(stage=text, m="class Arm:\n    def play(self): ...\ndef f(x): ...\ndef words(x): ...\n")
    target = "geo_assets.stage:make.<locals>.run"
    assert _symbols(target) == {"stage:make.<locals>.run", "m:Arm", "m:f"}
    before = _version(target)
    write(stage=text.replace('kinds={"a"}', 'kinds={"b"}'))
    assert _version(target) == before, "a declaration is no computation"
    write(stage=text.replace("factor / 2", "factor / 3"))
    assert _version(target) != before


def test_docstrings_that_a_model_reads_count(write: Write) -> None:
    write(**{"../env_service/toolbox": "def tool(op): ...\n"})
    text = "from env_service.toolbox import tool\nclass E:\n    @tool(op='look')\n    def look(self):\n        'Look.'\n"
    write(stage=f"{text}def run(): return E\n")
    before = _version()
    write(stage=f"{text.replace('Look.', 'See.')}def run(): return E\n")
    assert _version() != before
    write(stage='"""Prompt."""\ndef run(): return __doc__\n')
    before = _version()
    write(stage='"""Another."""\ndef run(): return __doc__\n')
    assert _version() != before


def test_what_enters_in_another_way_is_left_out(write: Write) -> None:
    write(
        stage="from geo_assets.m import PROTOCOLS\ndef run(): return PROTOCOLS\n",
        m="def a(): return 1\ndef b(): return 1\nPROTOCOLS = {'a': a, 'b': b}\n",
    )
    assert _symbols() == {"stage:run", "m:PROTOCOLS", "m:a", "m:b"}
    found = fingerprint([TARGET, "geo_assets.m:a"], apart=["geo_assets.m:PROTOCOLS"])
    assert set(found.symbols) == {TARGET, "geo_assets.m:a"}


def test_the_spec_counts_by_value(write: Write) -> None:
    write(stage=STAGE, helper=HELPER)
    assert _version(spec=PoolSpec(seed=1)) == _version(spec=PoolSpec(seed=1))
    assert _version(spec=PoolSpec(seed=1)) != _version(spec=PoolSpec(seed=2))


def test_declared_files_count_by_content_and_locks_by_package(write: Write) -> None:
    write(stage=STAGE, helper=HELPER)
    root = references.ROOT
    (root / "prompt.md").write_text("Look.")
    (root / "lock.txt").write_text("torch==1.0\ntorchvision==1.0\n")
    inputs = ["prompt.md", "lock.txt#torch"]
    before = _version(inputs=inputs)
    (root / "lock.txt").write_text("torchvision==2.0\ntorch==1.0\n")
    write()
    assert _version(inputs=inputs) == before
    (root / "lock.txt").write_text("torch==1.1\n")
    write()
    assert _version(inputs=inputs) != before
    (root / "lock.txt").write_text("torch==1.0\n")
    (root / "prompt.md").write_text("See.")
    write()
    assert _version(inputs=inputs) != before


def test_versions_are_the_same_with_and_without_the_cache_on_disk(write: Write) -> None:
    write(stage=STAGE, helper=HELPER)
    cold = _version()
    kept = references.ROOT / references.CACHE
    assert json.loads(kept.read_bytes())
    write()
    assert _version() == cold
    kept.write_bytes(b"torn")
    write()
    assert _version() == cold


def test_the_repository_is_followed_without_importing_it() -> None:
    program = (
        "import sys\nfrom geo_assets.lineage.fingerprint import fingerprint\n"
        "found = fingerprint(['geo_assets.training.grpo'])\n"
        "assert 'geo_assets.training.trainer:GeoTrainer' in found.symbols or len(found.symbols) > 50\n"
        "print('torch' in sys.modules, 'geo_assets.training.grpo' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.split() == ["False", "False"], done.stderr
