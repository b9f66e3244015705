"""Code that static analysis cannot follow is refused by file and line, not ignored."""

# Modules are written on one line each, however long.
# ruff: noqa: E501

from collections.abc import Callable

import pytest

from env_service.errors import GeoError
from geo_assets.lineage.fingerprint import UnfollowableCode, code_version

Write = Callable[..., None]
STAGE = "from geo_assets.m import f\ndef run(): return f()\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import importlib\n\n\ndef f():\n    importlib.import_module('os')\n", "m:5 calls import_module"),
        ("from importlib import import_module as load\ndef f():\n    return load('os')\n", "m:3 calls load"),
        ("def f():\n    return __import__('os')\n", "m:2 calls __import__"),
        ("def f():\n    exec('x = 1')\n", "m:2 calls exec"),
        ("def f():\n    return eval('1')\n", "m:2 calls eval"),
        ("def f():\n    return globals()['g']()\ndef g(): ...\n", "m:2 calls globals"),
        ("import sys\ndef f():\n    return sys.modules['geo_assets.n'].g\n", "m:3 reads sys.modules"),
        ("from geo_assets import n\ndef f():\n    return getattr(n, 'g')()\n", "m:3 calls getattr on a module"),
        ("import geo_assets.n\ndef f():\n    return vars(geo_assets.n)['g']\n", "m:3 calls vars on a module"),
        ("from geo_assets.n import *\ndef f():\n    return g()\n", r"m:1 imports \* from geo_assets.n"),
        ("from os.path import *\ndef f():\n    return join()\n", r"m:1 imports \* from os.path"),
        ("from ...n import g\ndef f():\n    return g()\n", "m:1 imports from above the top of its package"),
        ("class B:\n    pass\ndef f():\n    return B.__subclasses__()\n", "m:4 calls __subclasses__"),
        ("class B:\n    def __init_subclass__(cls): ...\ndef f():\n    return B\n", "m:2 defines __init_subclass__"),
        ("import runpy\ndef f():\n    runpy.run_module('geo_assets.n')\n", "m:3 calls run_module"),
        ("from geo_assets.n import nothing\ndef f():\n    return nothing\n", "takes nothing from geo_assets.n"),
    ],
)  # fmt: skip
def test_it_is_refused(write: Write, text: str, said: str) -> None:
    write(stage=STAGE, m=text, n="def g(): ...\n")
    with pytest.raises(UnfollowableCode, match=said):
        code_version(["geo_assets.stage:run"])


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return 1\ndef unreached():\n    exec('x = 1')\n",
        "def f(model):\n    model.eval()\n    return getattr(model, 'weight')\n",
        "import sys\nsys.modules.setdefault('heavy', None)\ndef f(): ...\n",
        "def f(eval):\n    return eval(1)\n",
    ],
    ids=["what is not reached", "methods and objects", "forbidding an import", "a local name"],
)
def test_what_only_looks_like_it_is_not(write: Write, text: str) -> None:
    write(stage=STAGE, m=text)
    assert code_version(["geo_assets.stage:run"])


@pytest.mark.parametrize("target", ["geo_assets.nowhere", "geo_assets.stage:nothing"])
def test_a_target_that_does_not_exist_is_named(write: Write, target: str) -> None:
    write(stage=STAGE, m="def f(): ...\n")
    with pytest.raises(GeoError, match="no code version"):
        code_version([target])
