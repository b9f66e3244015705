"""Which of vLLM's parsers read a model's calls and thoughts: by the model's family, unless an arm says it.

Each family writes its calls in a form of its own. Under another family's parser every call would stay plain
text and be scored as prose, so a model of no family known here is refused until its arm names the parser.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from env_service.errors import GeoError


class UnknownFamily(GeoError):
    """Nobody said which parser reads a model's calls."""


@dataclass(frozen=True)
class Parsers:
    """Names as `vllm serve --help` lists them; empty for none."""

    tools: str
    reasoning: str = ""


FAMILIES: tuple[tuple[re.Pattern[str], Parsers], ...] = tuple(
    (re.compile(pattern), parsers)
    for pattern, parsers in (
        (r"qwen3[._-]?[5-9]", Parsers("qwen3_coder", "qwen3")),
        (r"qwen3.*coder", Parsers("qwen3_coder")),
        # Its template opens the thoughts, so that a reply holds only their end.
        (r"qwen3.*thinking", Parsers("hermes", "deepseek_r1")),
        (r"qwen3.*instruct", Parsers("hermes")),
        (r"qwen3", Parsers("hermes", "qwen3")),
        (r"qwen2", Parsers("hermes")),
        (r"mistral|pixtral|ministral|magistral", Parsers("mistral")),
        (r"llama-?4", Parsers("llama4_pythonic")),
        (r"llama-?3", Parsers("llama3_json")),
        (r"glm-?4[._-]?[5-7]", Parsers("glm45", "glm45")),
    )
)
"""By the first that is found in a model's name, its owner left out."""


def family_parsers(model: str) -> Parsers | None:
    """The parsers of a model's family; None where it is of none that is known."""
    name = model.rstrip("/").rpartition("/")[2].lower()
    return next((parsers for family, parsers in FAMILIES if family.search(name)), None)


def parsers_of(
    model: str,
    extra: Mapping[str, Any],
    tools: str = "",
    reasoning: str | None = None,
) -> Parsers:
    """The parsers that a model is served with.

    Args:
        model: its repository.
        extra: further fields of every request; where they turn thinking off there are no thoughts to read.
        tools, reasoning: as declared; empty and None for the family's own.

    Raises:
        UnknownFamily: none is declared for calls, and the family is not known.
    """
    family = family_parsers(model)
    if not tools and family is None:
        raise UnknownFamily(
            f"Nobody said which tool parser reads the calls of {model}",
            "Say tool_parser in the arm, as vllm serve --help lists them under --tool-call-parser",
        )
    template = extra.get("chat_template_kwargs")
    silent = isinstance(template, Mapping) and template.get("enable_thinking") is False
    thoughts = "" if silent or family is None else family.reasoning
    return Parsers(tools or (family.tools if family else ""), thoughts if reasoning is None else reasoning)
