"""Code that changes other things at import, and names that Python looks up in an unexpected place, count."""

# Modules are written on one line each, however long.
# ruff: noqa: E501

from collections.abc import Callable

import pytest

from geo_assets.lineage.fingerprint import UnfollowableCode, code_version

Write = Callable[..., None]
TARGET = "geo_assets.stage:run"
FUNCTION = "def g(): return $\n"
REGISTRY = "from geo_assets.m import REG\ndef run(): return REG['g']()\n"
REGISTER = "REG = {}\ndef _add(f): REG[f.__name__] = f\ndef register(f):\n    _add(f)\n    return f\n"
CLASS = "from geo_assets.m import C\ndef run(): return C.x\n"
SINGLE = "from functools import singledispatch\n@singledispatch\ndef f(x): return 0\n"
ELSEWHERE = "from geo_assets.n import REG\n" + FUNCTION


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        (REGISTRY, REGISTER + FUNCTION + "register(g)\n"),
        (REGISTRY, REGISTER + FUNCTION + "H = register(g)\n"),
        (REGISTRY, REGISTER + "@register\n" + FUNCTION),
        (REGISTRY, REGISTER + "import sys\nif sys.platform:\n    @register\n    def g(): return $\n"),
        (REGISTRY, REGISTER + "class P:\n    @register\n    def g(self=None): return $\n"),
        (REGISTRY, "REG = {}\n" + FUNCTION + "class P:\n    REG['g'] = g\n"),
        (REGISTRY, "REG = {}\n" + FUNCTION + "_ = REG.setdefault('g', g)\n"),
        (REGISTRY, "REG = {}\n" + FUNCTION + "X = REG['g'] = g\n"),
        (REGISTRY, "REG = {}\n" + FUNCTION + "def fill(d): d['g'] = g\nfill(REG)\n"),
        (REGISTRY, "REG = {}\n" + FUNCTION + "dict.update(REG, g=g)\n"),
        (REGISTRY, "REG = {}\n" + FUNCTION + "try:\n    REG['g'] = g\nexcept* ValueError: pass\n"),
        (REGISTRY, "REG = {'1': 1, '2': 2, 'g': int}\ndel REG['$']\n"),
        (REGISTRY, "REG = {}\nif __name__ != '__main__':\n    REG['g'] = $\n"),
        (REGISTRY, "REG = {}\nif __name__ == '__main__':\n    pass\nelse:\n    REG['g'] = $\n"),
        ("from geo_assets.m import R\ndef run(): return R.t['g']()\n", "class R:\n    t = {}\n    @classmethod\n    def add(cls, f):\n        cls.t[f.__name__] = f\n        return f\n@R.add\n" + FUNCTION),
        ("from geo_assets.m import f\ndef run(): return f(1)\n", SINGLE + "@f.register\ndef _(x: int): return $\n"),
        (CLASS, "class C: x = 0\nC.x: int = $\n"),
        (CLASS, "class C: x = 0\nX = C.x = $\n"),
        (CLASS, "class C: x = 0\nsetattr(C, 'x', $)\n"),
        (CLASS, "x = $\nclass C:\n    x = x\n"),
        (CLASS, "def x(): return $\nclass C:\n    x = staticmethod(x)\n"),
        ("from geo_assets.n import REG\nimport geo_assets.m\ndef run(): return REG['g']()\n", ELSEWHERE + "REG |= {'g': g}\n"),
        ("from geo_assets.n import REG\ndef run():\n    import geo_assets.m\n    return REG['g']()\n", ELSEWHERE + "REG['g'] = g\n"),
        ("from geo_assets.n import REG\ndef run():\n    from geo_assets import m\n    return REG['g']()\n", ELSEWHERE + "REG['g'] = g\n"),
    ],
)  # fmt: skip
def test_it_counts(write: Write, stage: str, text: str) -> None:
    write(stage=stage, m=text.replace("$", "1"), n="REG = {}\n")
    before = code_version([TARGET])
    write(m=text.replace("$", "2"))
    assert code_version([TARGET]) != before


FALLBACK = "def run():\n    try:\n        from geo_assets.{} import f\n    except ImportError:\n        from geo_assets.{} import f\n    return f()\n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def g(): ...\nX = [lambda: g()]\ndef run(): return X\n", "def g(): ...\nX = [g()]\ndef run(): return X\n"),
        ("class A: ...\n@A\nclass B: ...\ndef run(): return B\n", "class A: ...\nclass B(A): ...\ndef run(): return B\n"),
        ("def run(X, Y, e): return [e for a in X for b in Y]\n", "def run(X, Y, e): return [e for a in X if b if Y]\n"),
        ("async def run(X): return [a async for a in X]\n", "async def run(X): return [a for a in X]\n"),
        ("def run(a, b): return {**a, 'k': b}\n", "def run(a, b): return {'k': a, **b}\n"),
        ("A = 1\nA = 2\ndef run(): return A\n", "A = 2\nA = 1\ndef run(): return A\n"),
        (FALLBACK.format("m", "n"), FALLBACK.format("n", "m")),
    ],
)  # fmt: skip
def test_they_are_not_the_same(write: Write, one: str, other: str) -> None:
    write(stage=one, m="def f(): return 1\n", n="def f(): return 2\n")
    before = code_version([TARGET])
    write(stage=other)
    assert code_version([TARGET]) != before


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("REG = {}\ndef register(f):\n    return f\n", "X = register(len)\n"),
        ("LIMIT = 1\ndef parse(x): return x + LIMIT\nREG = {'g': parse}\n", "SPEC = parse(3)\n"),
        ("def limit(): ...\nREG = {}\n", "class Row:\n    limit: int = 3\n"),
        ("REG = {}\ndef f():\n    REG = {}\n    REG['g'] = 1\n", "X = f()\n"),
    ],
)  # fmt: skip
def test_what_changes_nothing_that_is_reached_does_not_count(write: Write, text: str, more: str) -> None:
    write(stage=REGISTRY, m=text)
    before = code_version([TARGET])
    write(m=text + more)
    assert code_version([TARGET]) == before


@pytest.mark.parametrize(
    "text",
    ["def run(): return list(map(eval, ['g()']))\n", "e = eval\ndef run(): return e('g()')\n",
     "import builtins\ndef run(): return builtins.eval('g()')\n", "import pydoc\ndef run(): return pydoc.locate('a.b')\n",
     "def run(): return run.__globals__['g']()\n", "N = locals()\ndef run(): return N\n"],
)  # fmt: skip
def test_other_ways_to_text_are_refused(write: Write, text: str) -> None:
    write(stage=text)
    with pytest.raises(UnfollowableCode):
        code_version([TARGET])
