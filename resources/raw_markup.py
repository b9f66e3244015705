"""What a server should have taken out of a reply's words: thoughts, and calls in the model's own form.

Models write calls as text, each family in a form of its own, and the server's tool parser makes calls of
them. A server whose parser is another family's hands the text through: every call would be scored as prose,
which is our fault and looks like the model's. A call that is broken, or cut off, is the model's own doing,
so only one that is whole and names a tool on offer says that it was the parser.
"""

import re
from collections.abc import Collection

from resources.model_json import read_object_at

OPENED, CLOSED = "<think>", "</think>"
_BEFORE_JSON = re.compile(
    # Hermes and Qwen, Llama, Phi, Granite, Mistral (which writes a list), in this order.
    r"<tool_calls?>|<\|python_tag\|>|<\|tool_call\|>|\[TOOL_CALLS\]"
)
_NAMED = re.compile(
    # Qwen 3.5 and Llama, Claude's and MiniMax's, Gemma, Kimi and DeepSeek, GLM and Mistral.
    r"<function=\"?(?P<f>[\w.-]+)\"?>[\s\S]*?</function>"
    r"|<invoke name=\"(?P<i>[\w.-]+)\">[\s\S]*?</invoke>"
    r"|<start_function_call>\s*call:(?P<g>[\w.-]+)[\s\S]*?<end_function_call>"
    r"|<[|｜]tool[_▁]calls?[_▁](?:section[_▁])?begin[|｜]>(?:(?!<[|｜]tool[_▁]calls?[_▁]end)[\s\S]){0,200}?"
    r"(?:functions\.|tool[_▁]sep[|｜]>)(?P<d>[\w-]+)"
    r"|<tool_call>\s*(?P<t>[\w.-]+)\s*<arg_key>[\s\S]*?</tool_call>"
    r"|\[TOOL_CALLS\]\s*(?P<m>[\w-]+)(?:\[ARGS\])?\{"
)
LOOKED_AT = 20_000
"""Characters of a reply; what comes later is no better sign, and nothing but markup would take its time."""


def call_as_text(words: str, tools: Collection[str]) -> str:
    """The name of the first tool on offer that is called, whole, in the words of a reply; empty if none is.

    Args:
        words: a reply's words.
        tools: names of the tools on offer.
    """
    words = words[:LOOKED_AT]
    called = [_json_name(words[found.end() :].lstrip()) for found in _BEFORE_JSON.finditer(words)]
    called += [next(filter(None, found.groups())) for found in _NAMED.finditer(words)]
    return next((name for name in called if name in tools), "")


def without_thoughts(words: str) -> tuple[str, str]:
    """The words of a reply, and the thoughts that stand before them; those may be opened by the template."""
    before, closed, after = words.partition(CLOSED)
    opened = before.lstrip().startswith(OPENED)
    if opened or (closed and OPENED not in before):
        return after.lstrip(), before.lstrip().removeprefix(OPENED).strip()
    return words, ""


def _json_name(words: str) -> str:
    """The tool that a JSON object (or the first of a list) names, if words begin with one; empty if not."""
    try:
        value, _ = read_object_at(words, 0)
    except ValueError:
        return ""
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, dict):
        return ""
    called = first.get("function") if isinstance(first.get("function"), dict) else first
    name = called.get("name") if isinstance(called, dict) else None
    return name if isinstance(name, str) else ""
