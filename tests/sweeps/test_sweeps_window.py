"""What a model's own conversation does to its requests, and whose fault it is when a request is refused."""

import json
import re
from pathlib import Path

import pytest
from llm_double import LlmDouble, guesses
from llm_shapes import Request, Said
from sweeps_lab import Lab, double_arm, endpoint_at, lab_arm

from geo_assets.config.arms import load_arms
from geo_assets.sweeps.crew import request_sampling
from geo_assets.sweeps.episode_file import read_episodes
from geo_assets.sweeps.harness import DeadEndpoint
from geo_assets.sweeps.protocol_tools import parsed_arguments, sendable
from resources.endpoints import Dialect, ProviderError

WORDY = "I see a road. " * 400


def looks_for_ever(request: Request) -> Said:
    """Reads swatches; then looks, with many words, until the guess is demanded."""
    if "colour fills" in request.words:
        return guesses()(request)
    if request.tools:
        return Said(WORDY, [("look", {"heading_deg": 90})])
    return Said(json.dumps({"tool": "look", "arguments": {"heading_deg": 90, "why": WORDY}}))


@pytest.mark.parametrize("dialect", ["compatible", "openai", "anthropic"])
@pytest.mark.parametrize("protocol", ["tools", "json"])
def test_a_conversation_that_outgrows_the_window_is_truncated_and_scored(
    lab: Lab, tmp_path: Path, dialect: Dialect, protocol: str
) -> None:
    arm = double_arm(k=1, protocol=protocol)
    with LlmDouble(looks_for_ever, room=8000) as llm:
        endpoint = endpoint_at(f"{llm.url}/newest" if dialect == "openai" else llm.url, arm, dialect)
        swept = lab.guarded(arm, tmp_path, endpoint)
    assert swept.complete and len(swept.records) == 6
    for record in swept.records:
        last = record.turns[-1]
        assert 1 < len(record.turns) < 12
        assert (last.text, last.tool, last.finish_reason) == ("", "", "length")
        assert record.result.outcome == "parse_failure"
        assert {"truncated", "parse_failure"} <= set(record.result.failures)
        assert record.result.unfinished_replies == 0
        assert record.provenance.models_reported == ("m",)
    tally = endpoint.calls.tally()
    assert tally.faults == {"context": 6}, "one for each episode, and none is tried again"
    timings = [json.loads(line) for line in (tmp_path / "timings.jsonl").read_text().splitlines()]
    assert sum(timing["causes"].get("context", 0) for timing in timings) == 6


def test_an_opening_that_does_not_fit_is_the_endpoints_fault(lab: Lab, tmp_path: Path) -> None:
    arm = double_arm(k=2)
    with LlmDouble(looks_for_ever, room=4300) as llm:
        with pytest.raises(DeadEndpoint, match="maximum context length"):
            lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm))
        with pytest.raises(ProviderError) as caught:
            endpoint_at(llm.url, arm).complete([{"role": "user", "content": WORDY}], (), {"max_tokens": 4096})
    assert caught.value.fault == "context" and not caught.value.retryable
    assert read_episodes(tmp_path / "episodes.jsonl") == {}


@pytest.mark.parametrize("dialect", ["compatible", "openai", "anthropic"])
@pytest.mark.parametrize("name", ["look around!", "", "a" * 80, "周囲を見る", "look.east"])
def test_an_invented_name_is_kept_as_it_was_said_and_resent_as_the_api_takes_it(
    lab: Lab, tmp_path: Path, name: str, dialect: Dialect
) -> None:
    def brain(request: Request) -> Said:
        if "colour fills" in request.words or request.calls_made:
            return guesses()(request)
        return Said("", [(name, {"heading_deg": 90})])

    arm = double_arm(k=1)
    with LlmDouble(brain) as llm:
        swept = lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm, dialect))
    assert swept.complete and len(swept.records) == 6
    for record in swept.records:
        assert [turn.tool for turn in record.turns] == [name, "submit_guess"]
        assert record.result.failures[0] == "invalid_action"
    assert re.fullmatch("[A-Za-z0-9_-]{1,64}", sendable(name))


@pytest.mark.parametrize("depth", [10, 300, 500, 600, 900, 985, 5000])
def test_under_json_arguments_of_any_depth_are_the_models_own_fault(
    lab: Lab, tmp_path: Path, depth: int
) -> None:
    text = '{"heading_deg": ' + "[" * depth + "]" * depth + "}"
    assert parsed_arguments(text) is None
    calls = 0

    def brain(request: Request) -> Said:
        nonlocal calls
        calls += 1
        if "colour fills" in request.words or request.calls_made or "1. " in request.words:
            return guesses()(request)
        return Said(f'{{"tool": "look", "arguments": {text}}}')

    arm = double_arm(k=1, protocol="json")
    with LlmDouble(brain) as llm:
        swept = lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm))
    assert swept.complete and len(swept.records) == 6 and calls > 6


def test_calls_left_as_text_are_named_and_never_scored(lab: Lab, tmp_path: Path) -> None:
    def brain(request: Request) -> Said:
        if not request.tools:
            return guesses()(request)
        return Said('<tool_call>\n{"name": "look", "arguments": {"heading_deg": 90}}\n</tool_call>')

    arm = double_arm(k=2)
    with LlmDouble(brain) as llm, pytest.raises(DeadEndpoint, match="its tool parser is not this model's"):
        lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm))
    assert read_episodes(tmp_path / "episodes.jsonl") == {}


def test_an_endpoint_whose_calls_were_played_is_known_to_read_them_by_the_next_run(
    lab: Lab, tmp_path: Path
) -> None:
    arm, text = double_arm(k=1), '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    with LlmDouble() as llm:
        lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm))
        llm.brain = lambda request: Said(text) if request.tools else guesses()(request)
        swept = lab.guarded(arm.model_copy(update={"k": 2}), tmp_path, endpoint_at(llm.url, arm))
    assert swept.complete
    assert [record.turns[0].text for record in swept.records if record.sample == 1] == [text] * 6


# --- what the live arms send ------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", load_arms("live").arms, ids=lambda arm: arm.slug)
def test_no_live_arm_sends_what_its_provider_refuses(arm: object) -> None:
    declared = load_arms("live").get(arm.slug)  # type: ignore[attr-defined]
    own = declared.provider in ("openai", "anthropic")
    sampling = request_sampling(declared)
    assert ("temperature" in sampling) is not own
    dialect: Dialect = declared.provider if own else "compatible"  # type: ignore[assignment]
    with LlmDouble() as llm:
        reply = endpoint_at(f"{llm.url}/newest" if own else llm.url, declared, dialect).complete(
            [{"role": "user", "content": "hello"}], (), sampling, 1
        )
    assert reply.finish_reason == "stop"


def test_a_temperature_is_sent_where_it_is_declared() -> None:
    plain = lab_arm("best_fixed_point")
    assert "temperature" not in request_sampling(plain)
    told = plain.model_copy(update={"sampling": plain.sampling.model_copy(update={"temperature": 0.0})})
    assert request_sampling(told)["temperature"] == 0.0
