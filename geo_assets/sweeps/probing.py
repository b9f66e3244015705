"""One look at an arm's endpoint: what it serves, whether it sees and calls tools, and what a turn costs."""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from env_service.client import GeoGuessrEnv, schema
from env_service.errors import GeoError
from geo_assets.config.arms import ArmSpec
from geo_assets.sweeps import protocol_json, protocol_tools
from geo_assets.sweeps.crew import SPLIT, request_sampling, seed_of
from geo_assets.sweeps.guards import look, sees
from resources.calls import Price
from resources.endpoints import ChatEndpoint
from resources.replies import ANSWERED, FAULTS, ProviderError, Reply


def probe_arm(
    arm: ArmSpec, endpoint: ChatEndpoint, env_url: str, say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Everything that can be found out in a handful of calls; what goes wrong is among it and not raised.

    Args:
        arm: whose endpoint it is.
        endpoint: the arm's model.
        env_url: an environment, for one opening.
        say: told what is being asked.
    """
    problems: list[str] = []
    found: dict[str, Any] = {
        "arm": arm.slug,
        "provider": arm.provider,
        "model": arm.model,
        "protocol": arm.protocol,
        "address": endpoint.base_url,
        "serves": None,
        "sight": None,
        "turn": None,
    }
    say("what does it serve?")
    card = _tried(problems, lambda: look(arm, endpoint))
    found["serves"] = None if card is None else asdict(card)
    say("does it see?")
    sight = _tried(problems, lambda: sees(arm, endpoint))
    found["sight"] = None if sight is None else sight.facts()
    say("does it play?")
    began = time.monotonic()
    reply = _tried(problems, lambda: first_reply(arm, endpoint, env_url))
    if reply is not None:
        found["turn"] = _turn(arm, reply, time.monotonic() - began, problems)
    tally = endpoint.calls.tally()
    found["calls"] = {ANSWERED: tally.causes.get(ANSWERED, 0), **{f: tally.causes.get(f, 0) for f in FAULTS}}
    return found | {"problems": problems, "ok": not problems}


def first_reply(arm: ArmSpec, endpoint: ChatEndpoint, env_url: str) -> Reply:
    """The arm's reply to the opening of the first task, under its own protocol.

    Raises:
        ProviderError: the endpoint gave none.
    """
    tools = schema(env_url)["tools"]
    with GeoGuessrEnv(env_url) as env:
        seen = env.reset(split=SPLIT, index=0).observation
    if arm.protocol == protocol_json.NAME:
        offered = [tool for tool in tools if tool["name"] in seen.available_tools]
        content = protocol_json.message(seen, offered, arm.max_turns, (), seen, "", False)
        definitions = []
    else:
        content = protocol_tools.opening_content(seen, arm.max_turns)
        definitions = protocol_tools.tool_definitions(tools, seen.available_tools)
    messages = [{"role": "user", "content": content}]
    return endpoint.complete(messages, definitions, request_sampling(arm), seed_of(arm, 0))


def _turn(arm: ArmSpec, reply: Reply, wall_s: float, problems: list[str]) -> dict[str, Any]:
    call = protocol_json.json_call(reply.text) if arm.protocol == protocol_json.NAME else None
    calls = [call] if call else list(reply.tool_calls)
    if not calls:
        problems.append(f"the first reply calls no tool (it says {reply.text.strip()[:80]!r})")
    if reply.finish_reason is None:
        problems.append("the first reply has no finish reason")
    price = Price(arm.price.input_usd, arm.price.output_usd) if arm.price else None
    usage = reply.usage
    return {
        "latency_s": round(reply.latency_s, 3),
        "wall_s": round(wall_s, 3),
        "attempts": reply.attempts,
        "model_reported": reply.model_reported,
        "finish_reason": reply.finish_reason,
        "calls_tools": bool(calls),
        "tool": calls[0].name if calls else None,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "usd": price.of(usage.prompt_tokens, usage.completion_tokens) if price else None,
    }


def _tried(problems: list[str], call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ProviderError as error:
        problems.append(f"{error.fault}: {error.problem}")
    except GeoError as error:
        problems.append(error.problem)
    return None
