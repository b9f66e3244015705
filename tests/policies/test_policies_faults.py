"""Faults of an LLM server, each in its own column; both shapes; and the pace that refusals teach."""

import json
import threading
from collections import Counter

import pytest
from llm_double import LlmDouble
from llm_faults import CAUSE, FAULTS
from llm_shapes import Request, Said, card
from pydantic import SecretStr

from resources.calls import Price, Tally
from resources.endpoints import ChatEndpoint, Dialect, ProviderError
from resources.pacing import Abandoned, Pacing
from resources.replies import ANSWERED, same_model

ASK = [{"role": "user", "content": "hello"}]
DIALECTS: tuple[Dialect, ...] = ("compatible", "openai", "anthropic")


def endpoint(
    url: str, dialect: Dialect = "compatible", attempts: int = 2, timeout_s: float = 10.0
) -> ChatEndpoint:
    return ChatEndpoint(
        f"{url}/v1",
        "m",
        SecretStr("k"),
        attempts=attempts,
        backoff_s=0.01,
        timeout_s=timeout_s,
        dialect=dialect,
    )


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_every_fault_lands_in_its_own_column(fault: str, dialect: Dialect) -> None:
    with LlmDouble() as llm:
        model = endpoint(f"{llm.url}/fault-{fault}", dialect, timeout_s=0.5 if fault == "timeout" else 10.0)
        with pytest.raises(ProviderError) as caught:
            model.complete(ASK)
        model.close()
        assert caught.value.fault == CAUSE[fault]
        assert caught.value.faults == (CAUSE[fault],) * 2
        assert dict(model.calls.tally().causes) == {CAUSE[fault]: 2}
        assert len(llm.log) == 2


@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_column_per_call_and_the_columns_add_up(dialect: Dialect) -> None:
    names = [name for name in FAULTS if name != "timeout"]
    with LlmDouble(mixed=names, seed=5) as llm:
        model = endpoint(f"{llm.url}/mix-40", dialect, attempts=4)
        unanswered = 0
        for _ in range(60):
            try:
                model.complete(ASK)
            except ProviderError:
                unanswered += 1
        tally, met = model.calls.tally(), llm.faults
    wanted = Counter(CAUSE[name] if name else ANSWERED for name in met.elements())
    assert Counter(tally.causes) == wanted
    assert tally.calls == len(llm.log)
    assert tally.causes[ANSWERED] == 60 - unanswered
    paid = ("no_choices", "empty", "wrong_model")  # an answer came, and its tokens are asked to be paid
    assert tally.completion_tokens == 7 * sum(tally.causes[cause] for cause in (ANSWERED, *paid))
    assert set(tally.faults) == {CAUSE[name] for name in names}


def test_anthropic_is_asked_in_its_own_words_and_answers_in_ours() -> None:
    picture = "data:image/jpeg;base64,/9j/"
    talk = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "where?"}, image(picture)]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"heading_deg": 1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "Facing N"},
        {"role": "user", "content": [{"type": "text", "text": "Picture after look:"}, image(picture)]},
        {"role": "user", "content": "now guess"},
    ]
    tool = {
        "type": "function",
        "function": {"name": "look", "description": "d", "parameters": {"type": "object"}},
    }

    def brain(request: Request) -> Said:
        assert (request.calls_made, len(request.pictures), request.tools) == (1, 2, ("look",))
        return Said("Here.", [("look", {"heading_deg": 2})])

    with LlmDouble(brain, reports="m-20260101") as llm:
        reply = endpoint(llm.url, "anthropic").complete(
            talk, [tool], {"temperature": 0.5, "max_tokens": 9}, 4
        )
        body = llm.log[0].body
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/"}}
    assert body["system"] == "be brief"
    assert (body["max_tokens"], body["temperature"], "seed" in body) == (9, 0.5, False)
    assert body["tools"] == [{"name": "look", "description": "d", "input_schema": {"type": "object"}}]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][0]["content"][1] == block
    assert body["messages"][1]["content"] == [
        {"type": "tool_use", "id": "a", "name": "look", "input": {"heading_deg": 1}}
    ]
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "Facing N"},
        {"type": "text", "text": "Picture after look:"},
        block,
        {"type": "text", "text": "now guess"},
    ]
    assert (reply.text, reply.finish_reason, reply.model_reported) == ("Here.", "tool_calls", "m-20260101")
    assert (reply.tool_calls[0].name, json.loads(reply.tool_calls[0].arguments)) == (
        "look",
        {"heading_deg": 2},
    )
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (100, 7)


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
    ],
)
def test_anthropics_reasons_to_stop(stop: str, finish: str) -> None:
    with LlmDouble(lambda _: Said("words", finish=stop)) as llm:
        assert endpoint(llm.url, "anthropic").complete(ASK).finish_reason == finish


def image(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_served_is_listed_with_root_and_parent(dialect: Dialect) -> None:
    with LlmDouble(cards=[card("base", "org/base"), card("lora", "/lora", "base")]) as llm:
        cards = endpoint(llm.url, dialect).cards()
    assert (cards["base"].root, cards["base"].parent) == ("org/base", None)
    assert (cards["lora"].root, cards["lora"].parent) == ("/lora", "base")


@pytest.mark.parametrize(
    ("asked", "reported", "same"),
    [
        ("gpt-5.4-mini", "gpt-5.4-mini-2026-03-17", True),
        ("claude-haiku-4-5", "claude-haiku-4-5-20251001", True),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022", True),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet", True),
        ("llava", "llava:latest", True),
        ("claude-3-5-sonnet-latest", "claude-3-5-haiku-20241022", False),
        ("Qwen/Qwen3.5-27B", "qwen/qwen3.5-27b", True),
        ("models/gemini-2.5-flash", "gemini-2.5-flash", True),
        ("m", "", True),
        ("qwen2.5vl:72b", "qwen2.5vl:72b", True),
        ("qwen2.5vl:72b", "qwen2.5vl:7b", False),
        ("qwen2.5vl:72b", "qwen2.5vl", False),
        ("ft:gpt-4o-mini-2024-07-18:acme::A1", "ft:gpt-4o-mini-2024-07-18:acme::A1", True),
        ("ft:gpt-4o-mini-2024-07-18:acme::A1", "ft:gpt-4o-mini-2024-07-18:acme::B9", False),
        ("ft:gpt-4o-mini-2024-07-18:acme::A1", "gpt-4o-mini-2024-07-18", False),
        ("/data/ckpt/merged", "/data/ckpt/merged", True),
        ("./ckpt/merged", "/x/other/merged", False),
        ("/a/merged", "merged", False),
        ("gpt-5", "gpt-5.4", False),
        ("gpt-5.4-mini", "gpt-5.4", False),
        ("Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-2B", False),
        ("m", "m-turbo", False),
    ],
)
def test_which_reported_names_are_the_model_asked_for(asked: str, reported: str, same: bool) -> None:
    assert same_model(asked, reported) is same


@pytest.mark.parametrize(
    ("reported", "same"),
    [
        ("qwen/qwen3.5-27b", True),
        ("Qwen3.5-27B", True),
        ("Qwen/Qwen3.5-27B:novita", True),
        ("Qwen3.5-9B", False),
    ],
)
def test_only_a_routers_ids_end_in_the_name_of_a_provider(reported: str, same: bool) -> None:
    asked = "Qwen/Qwen3.5-27B:deepinfra"
    assert same_model(asked, reported, routed=True) is same
    assert not same_model(asked, reported)


def test_tallies_add_and_prices_are_for_a_million_tokens() -> None:
    total = Tally({ANSWERED: 2, "server": 1}, 10, 5) + Tally({ANSWERED: 1}, 1, 1)
    assert (total.calls, total.faults, total.prompt_tokens) == (4, {"server": 1}, 11)
    assert Price(2.0, 10.0).of(1_000_000, 500_000) == pytest.approx(7.0)


# --- the pace ---------------------------------------------------------------------------------------------


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def begin(pacing: Pacing) -> float:
    with pacing.turn(threading.Event()) as began:
        return began


def test_a_refusal_halves_what_runs_at_once_and_holds_everybody_for_as_long_as_asked() -> None:
    clock = Clock()
    pacing = Pacing(8, clock)
    for _ in range(20):
        begin(pacing)
        clock.now += 0.1
        pacing.answered()
    assert (pacing.limit, pacing.rate) == (8, None)
    began = begin(pacing)
    pacing.refused(began, 3.0)
    assert pacing.limit == 4
    assert pacing.wait_s == pytest.approx(3.0)
    assert pacing.rate is not None
    assert 5.0 < pacing.rate < 10.0, "below the ten a second that were refused"
    first = pacing.rate
    pacing.refused(began, None)
    assert (pacing.limit, pacing.rate) == (4, first), "it was on the way when the refusal came"
    clock.now += 3.5
    for _ in range(200):
        clock.now += 1.0
        begin(pacing)
        pacing.answered()
    assert pacing.limit == 8
    assert pacing.rate > first


def test_between_two_requests_lies_what_the_rate_says() -> None:
    clock = Clock()
    pacing = Pacing(4, clock)
    for _ in range(10):
        pacing.answered()
        clock.now += 0.2
    pacing.refused(clock.now, 0.0)
    assert pacing.rate is not None
    begin(pacing)
    assert pacing.wait_s == pytest.approx(1.0 / pacing.rate)


def test_who_waits_for_a_turn_can_be_told_to_give_up() -> None:
    clock, gone = Clock(), threading.Event()
    pacing = Pacing(4, clock)
    pacing.refused(clock.now, 60.0)
    gone.set()
    with pytest.raises(Abandoned), pacing.turn(gone):
        pass
