"""The `json` protocol: one JSON object per turn in plain words, and the current picture only.

For endpoints without tool calling, or with a cap on pictures. Each turn is a conversation of one message: the
environment's words, the turn budget, the tools with their schemas, what was done so far, and the latest
picture. The reply's first JSON object with a `tool` is its call; further objects are not played. As under
`tools`, a reply without a call is the answer, read by the environment, and a guess is demanded on the last
turn. The words are files in `prompts/json`.
"""

import json
from collections.abc import Sequence
from typing import Any

from env_service.canonical import canonical_json, sha256_hex
from env_service.models import GeoObservation
from geo_assets.sweeps.prompts import prompt
from geo_assets.sweeps.protocol_tools import (
    GUESS_TOOL,
    Ask,
    Played,
    Session,
    Tool,
    flat_action,
    picture_parts,
    picture_sha256,
    replied,
    spoken_action,
    text_part,
    turn_of,
    words_of,
)
from geo_assets.sweeps.records import Turn
from resources.model_json import read_json, read_object_at, write_json
from resources.replies import Reply, ToolCall

NAME = "json"
MAX_OBJECTS = 200
"""Braces that are tried in one reply; a text of nothing but braces is no call."""


def play(
    session: Session, ask: Ask, tools: Sequence[Tool], split: str, task_index: int, max_turns: int
) -> Played:
    """Play one episode from reset to end.

    Args:
        session: an environment session of its own.
        ask: the model.
        tools: the environment's tool definitions.
        max_turns: the budget told to the model; the caller has checked that the environment has the same.

    Raises:
        ProviderError: the endpoint gave no reply; the episode is unscored.
    """
    seen = opening = session.reset(split, task_index)
    offered = [tool for tool in tools if tool["name"] in opening.available_tools]
    ops = {str(tool["name"]): str(tool["op"]) for tool in tools}
    turns, replies, forced = list[Turn](), list[Reply](), False
    shown, shown_by = opening, ""
    while not seen.done:
        demanded = seen.steps_remaining == 1 and bool(turns)
        forced = forced or demanded
        content = message(opening, offered, max_turns, turns, shown, shown_by, demanded)
        digest = sha256_hex(canonical_json(content))
        reply = replied(ask, [{"role": "user", "content": content}], (), replies)
        replies.append(reply)
        call = json_call(reply.text)
        action = flat_action(call, ops) if call else spoken_action(reply.text)
        before, seen = seen, session.step(action)
        said = words_of(reply, digest)
        turns.append(turn_of(len(turns) + 1, len(replies), call, action, before, seen, demanded, said))
        if seen.image_base64 and call:
            shown, shown_by = seen, call.name
    return Played(picture_sha256(opening), tuple(turns), seen, tuple(replies), forced)


def message(
    opening: GeoObservation,
    tools: Sequence[Tool],
    max_turns: int,
    turns: Sequence[Turn],
    shown: GeoObservation,
    shown_by: str,
    demanded: bool,
) -> list[dict[str, Any]]:
    """Content of one turn's message.

    Args:
        opening: the first observation.
        tools: definitions of the tools on offer.
        max_turns: the budget told to the model.
        turns: what was done so far.
        shown: the observation with the latest picture.
        shown_by: the tool that brought it; empty for the opening.
        demanded: the guess is demanded.
    """
    words = prompt(NAME)
    listed = [
        {"name": tool["name"], "description": tool["description"], "parameters": tool["parameters"]}
        for tool in tools
    ]
    parts = [
        words["opening"].format(
            prompt=opening.prompt,
            turns=max_turns,
            tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in listed),
            seen=opening.feedback,
        )
    ]
    if turns:
        done = [
            words["turn"].format(number=turn.turn, call=_shown(turn), feedback=turn.feedback)
            for turn in turns
        ]
        parts.append(words["history"].format(turns="\n".join(done)))
    if demanded:
        parts.append(words["demand"].format(guess=GUESS_TOOL))
    if shown_by:
        parts.append(words["picture_after"].format(tool=shown_by))
    return [text_part("\n".join(parts)), *picture_parts(shown)]


def json_call(text: str) -> ToolCall | None:
    """The first JSON object of a reply that names a tool, as a call; None where there is none.

    Arguments that are no object come along as they are: the environment says what is wrong with them.
    """
    start = text.find("{")
    for _ in range(MAX_OBJECTS):
        if start < 0:
            return None
        try:
            value, end = read_object_at(text, start)
        except ValueError:
            end = start + 1
        else:
            if isinstance(value, dict) and isinstance(value.get("tool"), str) and value["tool"]:
                # Half a surrogate pair is legal in JSON escapes and cannot be stored.
                name, arguments = value["tool"].encode("utf-8", "replace").decode(), value.get("arguments")
                return ToolCall("", name, "" if arguments is None else write_json(arguments))
        start = text.find("{", end)
    return None


def _shown(turn: Turn) -> str:
    """A call as the model may have written it; what was no call is shown by its own words' beginning."""
    if not turn.tool:
        return json.dumps(turn.text[:200], ensure_ascii=False)
    try:
        arguments = read_json(turn.arguments or "{}")
    except ValueError:
        arguments = turn.arguments
    return write_json({"tool": turn.tool, "arguments": arguments}, ascii_only=False)
