"""Tools as plain methods: a decorator, and what it derives from signature and docstring.

A tool is a method of the environment class with `@tool(op=..., cost=...)`. Its name, its description and the
JSON Schema of its arguments come from the method itself, and every surface (the typed step, MCP, `/schema`)
reads the same `ToolSpec`. So a method added to the class, or to a subclass, is everywhere at once.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo

_MARK = "__tool__"
# Strict: true is not the number 1, and neither is "1". A whole number does for one with a fraction.
_STRICT = ConfigDict(extra="forbid", strict=True)
_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Example|Examples|Note):\s*$")
_ARGUMENT = re.compile(r"^(\w+):\s*(.*)$")

Method = TypeVar("Method", bound=Callable[..., Any])


class InvalidAction(ValueError):
    """A call that no tool answers: unknown op, unknown or missing field, value out of range.

    Its words never repeat what was sent.
    """


@dataclass(frozen=True)
class _Mark:
    op: str
    cost: float
    needs: frozenset[str]
    when: str | None


@dataclass(frozen=True)
class ToolSpec:
    """One tool, as every surface sees it.

    Attributes:
        name: the method's name, which is the tool's name over MCP and in a model's tool list.
        op: its name in a flat action.
        cost: what one call takes off the reward.
        description: the docstring without its sections.
        parameters: JSON Schema of the arguments, bounds included.
        needs: capabilities the imagery, the task and the mode must all offer.
        when: the field whose presence selects this tool among those that share an op; such a tool is not
            listed.
        arguments: the Pydantic model behind `parameters`.
    """

    name: str
    op: str
    cost: float
    description: str
    parameters: dict[str, Any]
    needs: frozenset[str]
    when: str | None = None
    arguments: type[BaseModel] = field(default=BaseModel, repr=False, compare=False)

    def definition(self) -> dict[str, Any]:
        """The tool as `/schema` prints it."""
        return {
            "name": self.name,
            "op": self.op,
            "cost": self.cost,
            "description": self.description,
            "parameters": self.parameters,
        }

    def bind(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments for the method, checked and converted; a null counts as not given.

        Raises:
            InvalidAction: says which field and why, in words that do not repeat what was sent.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        try:
            checked = self.arguments.model_validate(given)
        except ValidationError as error:
            wrong = {str(fault["loc"][0]) for fault in error.errors(include_url=False) if fault["loc"]}
            raise InvalidAction(f"{self.name}: {_faults(self.parameters, given, wrong)}") from None
        return {name: getattr(checked, name) for name in checked.model_fields_set}


def tool(
    op: str, cost: float = 0.0, needs: Iterable[str] = (), when: str | None = None
) -> Callable[[Method], Method]:
    """Mark a method as a tool.

    Args:
        op: its name in a flat action.
        cost: what one call takes off the reward, 0 or more.
        needs: capabilities without which the tool is not offered, such as "look" or "move".
        when: share `op` with another tool and answer instead of it whenever this field is given. Such a tool
            has no entry of its own in the list: it is another form of the first.
    """

    def mark(method: Method) -> Method:
        setattr(method, _MARK, _Mark(op, cost, frozenset(needs), when))
        return method

    return mark


def tool_specs(cls: type) -> tuple[ToolSpec, ...]:
    """Every tool of a class in the order of definition, base classes first.

    A subclass that overrides a tool keeps its place; `name = None` in a subclass removes one.

    Raises:
        TypeError: a tool has an argument without type or description, or two tools claim one op.
    """
    return _derived(cls)


def _derive(cls: type) -> tuple[ToolSpec, ...]:
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        names.update((name, None) for name, value in vars(base).items() if hasattr(value, _MARK))
    methods = {name: getattr(cls, name) for name in names}
    specs = tuple(_spec(name, method) for name, method in methods.items() if hasattr(method, _MARK))
    claimed: set[tuple[str, str | None]] = set()
    for spec in specs:
        if (spec.op, spec.when) in claimed:
            raise TypeError(f"two tools of {cls.__name__} claim the op {spec.op!r}")
        claimed.add((spec.op, spec.when))
    return specs


# Building the argument models takes milliseconds, and every call needs them.
_derived: Callable[[type], tuple[ToolSpec, ...]] = lru_cache(maxsize=64)(_derive)


def listed(specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The tools a model is shown; other forms of the same tool are left out."""
    return tuple(spec for spec in specs if spec.when is None)


class _NoOp:
    """Stands for the op of a call that named a tool, on a surface without ops, and named none there is."""

    def __repr__(self) -> str:
        return "no op"


UNKNOWN_TOOL: Final = _NoOp()


def resolve(specs: Iterable[ToolSpec], op: object, fields: Mapping[str, Any]) -> ToolSpec:
    """The tool that answers a flat action.

    Args:
        specs: what there is.
        op: of the action; `UNKNOWN_TOOL` to be refused in the words of a surface that has tools and no ops.
        fields: the rest of the action.

    Raises:
        InvalidAction: there is none with that op.
    """
    specs = tuple(specs)
    if op is UNKNOWN_TOOL:
        names = ", ".join(spec.name for spec in listed(specs))
        raise InvalidAction(f"there is no such tool; it is one of {names}")
    candidates = [spec for spec in specs if spec.op == op]
    for spec in candidates:
        if spec.when is not None and fields.get(spec.when) is not None:
            return spec
    for spec in candidates:
        if spec.when is None:
            return spec
    known = ", ".join(dict.fromkeys(spec.op for spec in specs))
    raise InvalidAction(f"there is no such op; it is one of {known}")


def action_schema(specs: Iterable[ToolSpec]) -> dict[str, Any]:
    """JSON Schema of the flat action: `op`, and the union of the fields of all ops."""
    specs = tuple(specs)
    fields: dict[str, Any] = {}
    for spec in specs:
        for name, schema in spec.parameters["properties"].items():
            # A field shared by two ops has one meaning; where bounds or defaults differ each tool has its
            # own.
            fields.setdefault(name, {key: value for key, value in schema.items() if key != "default"})
    ops = list(dict.fromkeys(spec.op for spec in specs))
    return {
        "title": "GeoAction",
        "description": "One flat object: `op` and only the fields of that op.",
        "type": "object",
        "properties": {"op": {"type": "string", "enum": ops}, **fields},
        "required": ["op"],
        "additionalProperties": False,
    }


def _spec(name: str, method: Callable[..., Any]) -> ToolSpec:
    mark: _Mark = getattr(method, _MARK)
    description, argument_words = _docstring(method)
    hints = get_type_hints(method, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.name not in hints or parameter.name not in argument_words:
            raise TypeError(f"tool {name}: argument {parameter.name} needs a type and a line under Args")
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        words = FieldInfo(default=default, description=argument_words[parameter.name])
        fields[parameter.name] = (hints[parameter.name], words)
    model = create_model(f"{name}_arguments", __config__=_STRICT, **fields)
    return ToolSpec(
        name=name,
        op=mark.op,
        cost=mark.cost,
        description=description,
        parameters=_parameters(model),
        needs=mark.needs,
        when=mark.when,
        arguments=model,
    )


def _parameters(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    properties = {name: _plain(entry) for name, entry in schema.get("properties", {}).items()}
    return {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    """An optional argument as the type it has when given: models read `anyOf: [x, null]` badly."""
    entry = {key: value for key, value in entry.items() if key != "title"}
    choices = [choice for choice in entry.get("anyOf", []) if choice.get("type") != "null"]
    if len(choices) == 1:
        entry = {key: value for key, value in entry.items() if key != "anyOf"} | choices[0]
    if entry.get("default", ...) is None:
        del entry["default"]
    return entry


def _docstring(method: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Description and the words for each argument, from a Google-style docstring."""
    prose: list[str] = []
    words: dict[str, str] = {}
    section, current = "", ""
    for line in inspect.cleandoc(method.__doc__ or "").splitlines():
        if heading := _SECTION.match(line):
            section, current = heading[1], ""
        elif not section:
            prose.append(line)
        elif section == "Args" and line.strip():
            if (entry := _ARGUMENT.match(line.strip())) and _indent(line) == 4:
                current = entry[1]
                words[current] = entry[2].strip()
            elif current:
                words[current] = f"{words[current]} {line.strip()}".strip()
    return re.sub(r"\s*\n\s*(?=\S)", " ", "\n".join(prose)).strip(), words


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _faults(parameters: Mapping[str, Any], given: Mapping[str, Any], wrong: Iterable[str]) -> str:
    """What is wrong with some arguments, in our own words: no library's next version alters what agents read.

    They never hold the input, which may be huge, hostile or both.

    Args:
        parameters: JSON Schema of the tool's arguments.
        given: what came, by name.
        wrong: names that were refused.
    """
    known, wrong = parameters["properties"], set(wrong)
    words = [
        f"{name} {_requirement(schema) if name in given else 'is required'}"
        for name, schema in known.items()
        if name in wrong
    ]
    for name in (name for name in given if name in wrong and name not in known):
        words.append(f"{str(name)[:60].encode('ascii', 'replace').decode()} is not permitted")
    return "; ".join(words[:4]) or "the arguments do not go together"


def _requirement(schema: Mapping[str, Any]) -> str:
    """What an argument must be."""
    if choices := schema.get("enum"):
        return f"must be {' or '.join(repr(choice) for choice in choices)}"
    if schema.get("type") == "string":
        most = f" of at most {schema['maxLength']} characters" if "maxLength" in schema else ""
        return f"must be a valid text{most}"
    kind = {"number": "a valid number", "integer": "a whole number", "boolean": "true or false"}
    bounds = [
        f"{words} {schema[bound]:g}"
        for bound, words in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "above"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "below"),
        )
        if bound in schema
    ]
    what = kind.get(schema.get("type", ""), "of another kind")
    return f"must be {', '.join(filter(None, (what, ' and '.join(bounds))))}"
