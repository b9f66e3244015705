"""The `tools` protocol: native tool calls, and the whole conversation with all its pictures.

It is the loop that a TRL rollout runs: the model replies, each call in the reply is played and answered, and
a reply without a call ends the episode, its words being the answer. Two things are added for a harness's
sake. The turn budget is stated once, in the opening message, and nowhere else. On the last turn a guess is
demanded, and the episode is marked `forced`.

The words are files in `prompts/tools`. OpenAI's tool messages carry text only, so pictures follow in a user
message behind the tool messages of the same reply. Tool definitions are the environment's own, from
`/schema`; no tool is named here but the guess.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from env_service.canonical import canonical_json, sha256_hex
from env_service.models import MAX_RESPONSE, GeoObservation
from geo_assets.sweeps.prompts import prompt
from geo_assets.sweeps.records import Pose, Turn
from resources.endpoints import Reply, ToolCall
from resources.model_json import depth_of, read_json
from resources.replies import ProviderError

NAME = "tools"
GUESS_TOOL = "submit_guess"
GUESS_OP = "guess"
MAX_ARGUMENTS = 500_000
MAX_DEPTH = 6
MAX_NAME = 64
UNSENDABLE = re.compile(r"[^A-Za-z0-9_-]")
"""What OpenAI and Anthropic refuse in the name of a tool, in a conversation's history too."""
MEDIA = {"view": "image/jpeg", "map": "image/png"}

Tool = Mapping[str, Any]


class Session(Protocol):
    """One environment session."""

    def reset(self, split: str, index: int) -> GeoObservation:
        """Start an episode of a task."""
        ...

    def step(self, action: dict[str, Any]) -> GeoObservation:
        """Play one flat action."""
        ...


class Ask(Protocol):
    """One reply to a conversation; `ChatEndpoint.complete` with sampling and seed bound."""

    def __call__(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """Ask for it."""
        ...


@dataclass(frozen=True)
class Played:
    """An episode as played: its turns, the last observation, and what only the clock knows."""

    opening_sha256: str
    turns: tuple[Turn, ...]
    last: GeoObservation
    replies: tuple[Reply, ...]
    forced: bool


def budget(turns: int) -> str:
    """The words that state the turn budget."""
    return prompt(NAME)["budget"].format(turns=turns)


def demand() -> str:
    """The words that demand the guess."""
    return prompt(NAME)["demand"].format(guess=GUESS_TOOL)


def picture_after(tool: str) -> str:
    """The words before a picture that a call brought."""
    return prompt(NAME)["picture_after"].format(tool=tool)


def tool_definitions(tools: Sequence[Tool], available: Sequence[str]) -> list[dict[str, Any]]:
    """OpenAI tool definitions of the tools that this episode offers, in the environment's order."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool["description"],
                "parameters": tool["parameters"],
            },
        }
        for tool in tools
        if tool["name"] in available
    ]


def opening_content(seen: GeoObservation, max_turns: int) -> list[dict[str, Any]]:
    """Content of the opening message: the environment's words, the turn budget, and the first picture."""
    return [text_part(f"{seen.prompt} {budget(max_turns)}\n{seen.feedback}"), *picture_parts(seen)]


@dataclass
class Conversation:
    """Messages so far, with a digest that does not have to read every picture again."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)

    def add(self, role: str, content: Any, **more: Any) -> None:
        """Append one message."""
        message = {"role": role, "content": content, **more}
        self.messages.append(message)
        self.digests.append(sha256_hex(canonical_json(message)))

    @property
    def sha256(self) -> str:
        """Digest of the conversation."""
        return sha256_hex(canonical_json(self.digests))


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
    seen = session.reset(split, task_index)
    talk = Conversation()
    talk.add("user", opening_content(seen, max_turns))
    definitions = tool_definitions(tools, seen.available_tools)
    ops = {str(tool["name"]): str(tool["op"]) for tool in tools}
    opening, turns, replies, forced = picture_sha256(seen), list[Turn](), list[Reply](), False
    while not seen.done:
        demanded = seen.steps_remaining == 1 and bool(turns)
        if demanded:
            talk.add("user", demand())
            forced = True
        digest = talk.sha256
        reply = replied(ask, talk.messages, definitions, replies)
        replies.append(reply)
        shown: list[tuple[ToolCall, GeoObservation]] = []
        for number, call in enumerate(reply.tool_calls or (None,)):
            action = flat_action(call, ops) if call else spoken_action(reply.text)
            before, seen = seen, session.step(action)
            said = words_of(reply, digest) if number == 0 else {}
            turns.append(turn_of(len(turns) + 1, len(replies), call, action, before, seen, demanded, said))
            if call:
                shown.append((call, seen))
            if seen.done:
                break
        if not seen.done:
            _answer(talk, reply, shown)
    return Played(opening, tuple(turns), seen, tuple(replies), forced)


def replied(
    ask: Ask, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool], replies: Sequence[Reply]
) -> Reply:
    """The next reply of an episode.

    A conversation that has outgrown the model's window is the doing of whoever made it long: the turn is
    truncated before its first word, as where the window ends within a reply. Only an opening that does not
    fit says that the endpoint is not fit for this.

    Raises:
        ProviderError: the endpoint gave none.
    """
    try:
        return ask(messages, tools)
    except ProviderError as error:
        if error.fault != "context" or not replies:
            raise
        # It is no answered call, and is counted where it was asked.
        return Reply(
            text="",
            tool_calls=(),
            reasoning="",
            finish_reason="length",
            usage=error.usage,
            model_reported=replies[-1].model_reported,
            attempts=error.attempts,
            faults=error.faults,
        )


def turn_of(
    number: int,
    reply: int,
    call: ToolCall | None,
    action: dict[str, Any],
    before: GeoObservation,
    seen: GeoObservation,
    demanded: bool,
    said: Mapping[str, Any],
) -> Turn:
    """The record of one call; `said` is what `words_of` its reply gives, on the reply's first call."""
    return Turn(
        turn=number,
        reply=reply,
        tool=call.name if call else "",
        arguments=call.arguments if call else "",
        action=action,
        pose_before=_pose(before),
        pose_after=_pose(seen),
        image_kind=seen.image_kind,
        image_sha256=picture_sha256(seen),
        feedback=seen.feedback,
        cost=seen.action_cost,
        turns_left=seen.steps_remaining,
        demanded=demanded,
        **said,
    )


def flat_action(call: ToolCall, ops: Mapping[str, str]) -> dict[str, Any]:
    """The environment's action for a tool call.

    Arguments that are no JSON object go along under a field that no tool has: the environment answers as it
    does to every invalid call, which spends the turn and says what was wrong.
    """
    op = ops.get(call.name, call.name)
    arguments = parsed_arguments(call.arguments)
    if arguments is None:
        return {"op": op, "arguments_must_be_a_json_object": True}
    return {**arguments, "op": op}


def spoken_action(text: str) -> dict[str, Any]:
    """A reply without a call is the answer, read by the environment; of an endless one the end counts."""
    return {"op": GUESS_OP, "response": text[-MAX_RESPONSE:]}


def parsed_arguments(text: str) -> dict[str, Any] | None:
    """The arguments as an object; empty text is no arguments; None where it is no JSON object."""
    if not text.strip():
        return {}
    try:
        value = read_json(text)
        if not isinstance(value, dict) or depth_of(value) > MAX_DEPTH:
            return None
        # 1e999, half surrogates or a megabyte do not fit the wire: no call that the environment could judge.
        size = len(canonical_json(value))
    except ValueError:
        return None
    return value if size < MAX_ARGUMENTS else None


def sendable(name: str) -> str:
    """A tool's name as every API takes it back; a model may invent any."""
    return UNSENDABLE.sub("_", name)[:MAX_NAME] or "_"


def picture_sha256(seen: GeoObservation) -> str:
    """SHA-256 of the picture's bytes; empty where there is none."""
    return sha256_hex(base64.b64decode(seen.image_base64)) if seen.image_base64 else ""


def _answer(talk: Conversation, reply: Reply, shown: Sequence[tuple[ToolCall, GeoObservation]]) -> None:
    calls = [
        {
            "id": call.id,
            "type": "function",
            # Some endpoints refuse a history whose arguments do not parse, so that it would never be scored.
            "function": {
                "name": sendable(call.name),
                "arguments": call.arguments if parsed_arguments(call.arguments) else "{}",
            },
        }
        for call, _ in shown
    ]
    talk.add("assistant", reply.text or None, tool_calls=calls)
    pictures: list[dict[str, Any]] = []
    for call, seen in shown:
        talk.add("tool", seen.feedback, tool_call_id=call.id)
        if seen.image_base64:
            pictures += [text_part(picture_after(call.name)), *picture_parts(seen)]
    if pictures:
        talk.add("user", pictures)


def words_of(reply: Reply, digest: str) -> dict[str, Any]:
    """What a reply said, as fields of a turn, and the digest of the conversation that it answered."""
    return {
        "messages_sha256": digest,
        "text": reply.text,
        "reasoning": reply.reasoning,
        "finish_reason": reply.finish_reason,
        "prompt_tokens": reply.usage.prompt_tokens,
        "completion_tokens": reply.usage.completion_tokens,
    }


def text_part(words: str) -> dict[str, Any]:
    """A part of a message: words."""
    return {"type": "text", "text": words}


def picture_parts(seen: GeoObservation) -> list[dict[str, Any]]:
    """A part of a message: the picture of an observation, if it has one."""
    if not seen.image_base64:
        return []
    url = f"data:{MEDIA[seen.image_kind]};base64,{seen.image_base64}"
    return [{"type": "image_url", "image_url": {"url": url}}]


def _pose(seen: GeoObservation) -> Pose:
    return Pose(
        frame_index=int(seen.metadata.get("frame_index") or 0),
        heading_deg=seen.heading_deg,
        pitch_deg=seen.pitch_deg,
        fov_deg=seen.fov_deg,
    )
