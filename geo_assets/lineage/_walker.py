"""A walk over a syntax tree that gives its normal form, and the names in it that belong to no inner scope.

Names are resolved as Python does it: parameters and assignments are local to their function, comprehensions
have scopes of their own, class bodies are seen by themselves and not by their methods. A name that an import
binds is written as what it stands for, so that aliases leave no trace.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence

from geo_assets.lineage._names import (
    COMPREHENSIONS,
    FUNCTIONS,
    Import,
    Ref,
    bound_by,
    chain_of,
    import_targets,
    imports_within,
    parameter_names,
    undocumented,
)

DECLARING = {"geo_assets.lineage.assets.geo_asset"}
"""What they are given enters a version by value, so these decorators are no part of the code."""
DOCUMENTED = {"env_service.toolbox.tool"}
"""Under these decorators a docstring is shown to a model, so it is part of what runs."""
PLAIN = {
    "abc.abstractmethod",
    "contextlib.asynccontextmanager",
    "contextlib.contextmanager",
    "functools.cache",
    "functools.cached_property",
    "functools.lru_cache",
    "functools.wraps",
    "typing.override",
    "classmethod",
    "property",
    "staticmethod",
}
"""Decorators that read no annotations."""
RUNS_TEXT = {"exec", "eval", "__import__", "globals", "locals"}
BY_PATH = {"builtins.eval", "builtins.exec", "pydoc.locate"}
LOOKS_UP = {"getattr", "setattr", "hasattr", "delattr", "vars"}
LOADERS = {"import_module", "__subclasses__", "spec_from_file_location", "resolve_name", "walk_packages"}
LOADERS |= {"run_module", "run_path", "__globals__"}
"""Attributes that load or find code by a string. Not `reload`: what is reloaded was imported by name."""


class Walker:
    """Collects the normal form of what it visits, and its references.

    Args:
        imports: names that the module's imports, and nothing else, bind.
        home: the package that relative imports start from.
        doc: the module's docstring, which counts where `__doc__` is read.
    """

    def __init__(self, imports: Mapping[str, Sequence[Import]], home: str, doc: str) -> None:
        self._imports, self._home, self._doc = imports, home, doc
        self.tokens: list[str] = []
        self.refs: set[Ref] = set()
        self.imported: set[str] = set()
        self.faults: list[tuple[int, str]] = []
        self.probes: list[tuple[int, str, Ref]] = []
        self.scopes: list[tuple[dict[str, Import | None], bool]] = []
        self.outermost: set[str] = set()
        self._certain: set[str] = set()

    def visit(self, node: ast.AST | None) -> None:
        """One node and all below it."""
        if node is None:
            return
        if isinstance(node, ast.Name | ast.Attribute):
            self._named(node)
        elif isinstance(node, FUNCTIONS):
            self._function(node)
        elif isinstance(node, ast.Lambda):
            self.tokens.append("Lambda(")
            self._parameters(node.args, False)
            self.tokens.append(":")
            self.within(parameter_names(node.args), [node.body])
            self.tokens.append(")")
        elif isinstance(node, ast.ClassDef):
            self._class(node)
        elif isinstance(node, COMPREHENSIONS):
            self._comprehension(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for name, target in import_targets(node, self._home, self.faults):
                self.imported.add(target[0])
                if target[1]:
                    self.imported.add(f"{target[0]}.{target[1]}")
                # Where several imports bind one name, it matters which stands where.
                if not self.scopes or ("." not in name and self.scopes[-1][0].get(name) is None):
                    self.tokens.append(f"{name}={target}")
        elif isinstance(node, ast.AnnAssign):
            self._annotated(node)
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.Constant):
            self.tokens.append(f"{type(node.value).__name__}={node.value!r}")
        else:
            self._plainly(node)

    def ref(self, name: str, attributes: Sequence[str] = ()) -> Ref | None:
        """What a name refers to; None where it is local."""
        local, target = self._lookup(name)
        if target is not None:
            return (target[0], *([target[1]] if target[1] else []), *attributes)
        return None if local else ("", name, *attributes)

    def canonical(self, node: ast.expr) -> str:
        """A decorator's or base's name as `module.name`; a builtin's bare; empty where it is none."""
        chain = chain_of(node.func if isinstance(node, ast.Call) else node)
        ref = self.ref(*chain) if chain else None
        return ".".join(part for part in ref if part) if ref else ""

    def annotation(self, node: ast.expr | None) -> None:
        """An annotation that counts, whether written as an expression or as a string."""
        if node is None:
            return
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                try:
                    text = ast.parse(inner.value, mode="eval").body
                except SyntaxError:
                    continue
                self.visit(text)
        self.visit(node)

    def _lookup(self, name: str) -> tuple[bool, Import | None]:
        for depth, (scope, of_class) in enumerate(reversed(self.scopes)):
            if name in scope and (depth == 0 or not of_class):
                if depth == len(self.scopes) - 1:
                    self.outermost.add(name)
                return True, scope[name]
        targets = self._imports.get(name)
        if targets is not None and len(set(targets)) == 1:
            return False, targets[0]
        return False, None

    def _named(self, node: ast.Name | ast.Attribute) -> None:
        chain = chain_of(node)
        if chain is None:
            assert isinstance(node, ast.Attribute)
            self.visit(node.value)
            self._attribute(node.attr, node.lineno)
            return
        name, attributes = chain
        if name == "__doc__":
            self.tokens.append(self._doc)
        ref = self.ref(name, attributes)
        _, target = self._lookup(name)
        self.tokens.append(f"@{target[0]}:{target[1]}" if target else name)
        read = isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load)
        if read and self.scopes and self.scopes[-1][1] and ref is None and name not in self._certain:
            # As long as a class body has not bound a name, Python takes the module's.
            self._of_module(name, attributes)
        if ref is not None:
            self.refs.add(ref)
            if ref[:2] == ("sys", "modules"):
                self._modules(ref, node.lineno)
            if (ref[0] == "" and name in RUNS_TEXT) or ".".join(ref[:2]) in BY_PATH:
                # Called or handed on: `map(eval, texts)` calls it, too.
                self.faults.append((node.lineno, f"calls {'.'.join((name, *attributes))}"))
        for attribute in attributes:
            self._attribute(attribute, node.lineno)

    def _of_module(self, name: str, attributes: Sequence[str]) -> None:
        targets = self._imports.get(name)
        for target in targets or [("", name)]:
            self.refs.add((target[0], *([target[1]] if target[1] else []), *attributes))

    def _attribute(self, name: str, line: int) -> None:
        self.tokens.append(f".{name}")
        if name in LOADERS:
            self.faults.append((line, f"calls {name}"))

    def _modules(self, ref: Ref, line: int) -> None:
        # To forbid a module is fine; to take one out by its name is not.
        if ref[2:3] not in (("setdefault",), ("pop",)):
            self.faults.append((line, "reads sys.modules"))

    def _call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name):
            local, target = self._lookup(node.func.id)
            own = node.func.id if not local and target is None else ""
            if target is not None and target[1] in LOADERS:
                self.faults.append((node.lineno, f"calls {node.func.id}"))
            if own in LOOKS_UP and node.args:
                chain = chain_of(node.args[0])
                ref = self.ref(*chain) if chain else None
                if ref is not None:
                    self.probes.append((node.lineno, node.func.id, ref))
        if self.canonical(node.func) == "typing.cast" and node.args:
            self.tokens.append("cast(")
            for argument in node.args[1:]:
                self.visit(argument)
            return
        self._plainly(node)

    def _annotated(self, node: ast.AnnAssign) -> None:
        in_class = bool(self.scopes) and self.scopes[-1][1]
        if node.value is None and not in_class:
            return
        self.tokens.append("Assign(")
        self.visit(node.target)
        if in_class:
            self.annotation(node.annotation)
        self.visit(node.value)
        self.tokens.append(")")

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.function(node, node.name)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> None:
        """A function, its declaring decorators left out."""
        decorators = [item for item in node.decorator_list if self.canonical(item) not in DECLARING]
        names = {self.canonical(item) for item in decorators}
        if names & {"typing.overload"}:
            return
        self.tokens.append(f"{type(node).__name__} {name}(")
        for item in decorators:
            self.visit(item)
        if names & DOCUMENTED:
            self.tokens.append(ast.get_docstring(node) or "")
        read = bool(names - PLAIN)
        self._parameters(node.args, read)
        if read:
            self.tokens.append("->")
            self.annotation(node.returns)
        self.tokens.append(":")
        body = undocumented(node.body)
        outside = {
            name
            for statement in body
            for inner in ast.walk(statement)
            if isinstance(inner, ast.Global)
            for name in inner.names
        }
        self.within((parameter_names(node.args) | bound_by(body)) - outside, body)
        self.tokens.append(")")

    def _parameters(self, args: ast.arguments, annotations: bool) -> None:
        for kind in ("posonlyargs", "args", "vararg", "kwonlyargs", "kwarg"):
            found = getattr(args, kind)
            for arg in found if isinstance(found, list) else [found]:
                if arg is not None:
                    self.tokens.append(f"{kind}:{arg.arg}")
                    if annotations:
                        self.annotation(arg.annotation)
        for default in (*args.defaults, *args.kw_defaults):
            self.tokens.append("=")
            self.visit(default)

    def within(self, names: Iterable[str], body: Sequence[ast.AST], of_class: bool = False) -> None:
        """Visit a body in a scope of its own."""
        self.scopes.append((self.scope(names, body), of_class))
        outer, self._certain = self._certain, set()
        for node in body:
            self.visit(node)
            if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Assign)) or _is_set(node):
                self._certain |= bound_by([node])
        self.scopes.pop()
        self._certain = outer

    def scope(self, names: Iterable[str], body: Sequence[ast.AST]) -> dict[str, Import | None]:
        """Local names, those that an import alone binds with what they stand for."""
        scope: dict[str, Import | None] = dict.fromkeys(names)
        others = bound_by(body, imports=False)
        for name, targets in imports_within(body, self._home, self.faults).items():
            if name not in scope:
                continue
            if len(targets) == 1 and name not in others:
                (scope[name],) = targets
            else:
                self.refs |= {(module, *([symbol] if symbol else [])) for module, symbol in targets}
                self.tokens.append(f"{name}={sorted(targets)}")
        return scope

    def _class(self, node: ast.ClassDef) -> None:
        self.tokens.append(f"class {node.name}(")
        for kind, items in (("@", node.decorator_list), ("base", node.bases), ("key", node.keywords)):
            for item in items:
                self.tokens.append(kind)
                self.visit(item)
        self.tokens.append(":")
        body = undocumented(node.body)
        for statement in body:
            if isinstance(statement, FUNCTIONS) and statement.name == "__init_subclass__":
                self.faults.append((statement.lineno, "defines __init_subclass__"))
        self.within(bound_by(body), body, of_class=True)
        self.tokens.append(")")

    def _comprehension(self, node: ast.expr) -> None:
        assert isinstance(node, COMPREHENSIONS)
        self.tokens.append(f"{type(node).__name__}(")
        # The first iterable is evaluated outside.
        self.visit(node.generators[0].iter)
        names = bound_by(generator.target for generator in node.generators)
        self.scopes.append((dict.fromkeys(names), False))
        for number, generator in enumerate(node.generators):
            self.tokens.append("async for" if generator.is_async else "for")
            self.visit(generator.target)
            if number:
                self.tokens.append("in")
                self.visit(generator.iter)
            for condition in generator.ifs:
                self.tokens.append("if")
                self.visit(condition)
        self.tokens.append(":")
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(part)
        self.scopes.pop()
        self.tokens.append(")")

    def _plainly(self, node: ast.AST) -> None:
        """Any other node: its kind, and its fields without those that are empty."""
        self.tokens.append(f"{type(node).__name__}(")
        for name, value in ast.iter_fields(node):
            if name in ("ctx", "type_comment", "kind") or value is None or value == []:
                continue
            self.tokens.append(name)
            body = isinstance(value, list) and name in ("body", "orelse", "finalbody")
            for item in (undocumented(value) if body else value) if isinstance(value, list) else [value]:
                if isinstance(item, ast.AST):
                    self.visit(item)
                else:
                    # `None` holds the place of `**` in a dict: which of the others go before it counts.
                    self.tokens.append(repr(item))
        self.tokens.append(")")


def _is_set(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is not None
