"""The two protocols and the two shapes of API: what is sent, what is played, and what is kept of it."""

import json
from pathlib import Path

import pytest
from llm_double import LlmDouble, guesses
from llm_shapes import Request, Said
from sweeps_lab import Lab, double_arm, endpoint_at, lab_arm

from geo_assets.sweeps.prompts import prompt
from geo_assets.sweeps.protocol_json import json_call
from geo_assets.sweeps.protocol_tools import budget


def test_anthropics_route_leaves_the_same_bytes_as_openais(lab: Lab, tmp_path: Path) -> None:
    arm = double_arm(k=1)

    def looks_then_guesses(request: Request) -> Said:
        if not request.tools:
            return guesses()(request)
        call = (
            ("look", {"heading_deg": 90.0})
            if not request.calls_made
            else ("submit_guess", {"lat": 1, "lon": 2})
        )
        return Said("", [call])

    with LlmDouble(looks_then_guesses) as llm:
        for dialect in ("openai", "anthropic"):
            lab.guarded(arm, tmp_path / dialect, endpoint_at(llm.url, arm, dialect))
        shapes = {entry.shape for entry in llm.log}
    assert shapes == {"openai", "anthropic"}
    one, other = (tmp_path / dialect / "episodes.jsonl" for dialect in ("openai", "anthropic"))
    assert one.read_bytes() == other.read_bytes()


def test_under_json_a_turn_is_one_message_with_the_current_picture(lab: Lab, tmp_path: Path) -> None:
    arm = double_arm(k=1, protocol="json")

    def looks_then_guesses(request: Request) -> Said:
        if "colour fills" in request.words:
            return guesses()(request)
        if "1. {" not in request.words:
            return Said(
                'Let me see. {"tool": "look", "arguments": {"heading_deg": 90}} {"tool": "list_pins"}'
            )
        return Said('```json\n{"tool": "submit_guess", "arguments": {"lat": 48.1, "lon": 11.6}}\n```')

    with LlmDouble(looks_then_guesses) as llm:
        swept = lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm))
        asked = [entry.body for entry in llm.log[3:]]
    assert {len(body["messages"]) for body in asked} == {1}
    assert not any("tools" in body for body in asked)
    for body in asked:
        words, *pictures = body["messages"][0]["content"]
        assert len(pictures) == 1, "the current picture and no other"
        assert words["text"].count(budget(12)) == 1
        assert '"name": "submit_guess"' in words["text"]
    for record in swept.records:
        assert [turn.tool for turn in record.turns] == ["look", "submit_guess"]
        assert record.result.failures == ()
        assert (record.provenance.protocol, record.provenance.prompt_version) == (
            "json",
            prompt("json").version,
        )
        assert record.turns[0].image_sha256 != record.opening_sha256


def test_a_policy_plays_alike_under_both_protocols(lab: Lab, tmp_path: Path) -> None:
    native = lab.sweep(lab_arm("true_capital", k=1), tmp_path / "tools")
    told = lab.sweep(lab_arm("true_capital_json", k=1), tmp_path / "json")
    assert told.complete
    for one, other in zip(native.records, told.records, strict=True):
        assert (one.result.guess_lat, one.result.guess_lon) == (
            other.result.guess_lat,
            other.result.guess_lon,
        )
        assert one.result.cost == other.result.cost
        assert one.provenance.prompt_version != other.provenance.prompt_version


@pytest.mark.parametrize(
    ("said", "tools", "failures"),
    [
        ("I think it is Munich. <guess>48.1, 11.6</guess>", [""], ("prose",)),
        ('{"tool": "look", "argu', [""], ("parse_failure", "prose", "truncated")),
        ('{"tool": "look", "arguments": 90}', ["look"], ("invalid_action", "unparseable_arguments")),
        ('{"tool": "teleport"}', ["teleport"], ("invalid_action",)),
    ],
)
def test_under_json_failures_are_the_models_own(
    lab: Lab, tmp_path: Path, said: str, tools: list[str], failures: tuple[str, ...]
) -> None:
    arm = double_arm(k=1, protocol="json")
    finish = "length" if "truncated" in failures else ""

    def brain(request: Request) -> Said:
        if "colour fills" in request.words or "1. " in request.words:
            return guesses()(request)
        return Said(said, finish=finish)

    with LlmDouble(brain) as llm:
        record = lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm)).records[0]
    assert [turn.tool for turn in record.turns][: len(tools)] == tools
    assert record.result.failures == failures


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ('{"tool": "look", "arguments": {"heading_deg": 1}}', ("look", {"heading_deg": 1})),
        ('x {"a": 1} {"tool": "look"} y', ("look", None)),
        ('{"arguments": {"tool": "look"}}', None),
        ('{"tool": ""}', None),
        ("{" * 5000, None),
        ("[" * 5000, None),
        ("", None),
    ],
)
def test_the_first_object_with_a_tool_is_the_call(text: str, call: tuple[str, object] | None) -> None:
    found = json_call(text)
    if call is None:
        assert found is None
    else:
        assert found is not None
        assert (found.name, json.loads(found.arguments) if found.arguments else None) == call


def test_fabrication_and_prose_are_found_in_the_policies_that_commit_them(lab: Lab, tmp_path: Path) -> None:
    fabricates = lab.sweep(lab_arm("fabricates", k=1), tmp_path / "f")
    assert all(record.result.fabricated for record in fabricates.records)
    assert all(record.result.outcome == "guess" for record in fabricates.records)
    prose = lab.sweep(lab_arm("answers_in_prose", k=1), tmp_path / "p")
    assert {record.result.outcome for record in prose.records} == {"parse_failure"}
