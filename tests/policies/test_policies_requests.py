"""What goes to each provider, what it would refuse, and what of its answers a server should have read."""

import json
from typing import Any

import pytest
from llm_double import LlmDouble
from llm_shapes import Request, Said

from resources.endpoints import ChatEndpoint, Dialect, ProviderError
from resources.model_json import TOO_DEEP, depth_of, read_json, with_strings, write_json
from resources.raw_markup import call_as_text, without_thoughts
from resources.replies import cut

ASK = [{"role": "user", "content": "hello"}]
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object"}}}
    for name in ("look", "submit_guess")
]
HERMES = '<tool_call>\n{"name": "look", "arguments": {"heading_deg": 90}}\n</tool_call>'
CODER = "<tool_call>\n<function=look>\n<parameter=heading_deg>\n90\n</parameter>\n</function>\n</tool_call>"


def endpoint(url: str, dialect: Dialect = "compatible", attempts: int = 2) -> ChatEndpoint:
    return ChatEndpoint(f"{url}/v1", "m", attempts=attempts, backoff_s=0.01, dialect=dialect)


def calling(name: str, arguments: str = "{}", text: str | None = None) -> list[dict[str, Any]]:
    """A conversation in which a tool was called."""
    call = {"id": "a", "type": "function", "function": {"name": name, "arguments": arguments}}
    answer = {"role": "tool", "tool_call_id": "a", "content": "Facing E"}
    return [*ASK, {"role": "assistant", "content": text, "tool_calls": [call]}, answer]


# --- what is sent -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        ("openai", "max_completion_tokens"),
        ("compatible", "max_tokens"),
        ("router", "max_tokens"),
        ("anthropic", "max_tokens"),
    ],
)
def test_the_limit_of_a_reply_goes_by_the_providers_own_name(dialect: Dialect, name: str) -> None:
    with LlmDouble() as llm:
        endpoint(llm.url, dialect).complete(ASK, sampling={"max_tokens": 9})
        (entry,) = llm.log
    assert {key: value for key, value in entry.body.items() if "tokens" in key} == {name: 9}


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_the_newest_models_take_what_is_sent_where_no_temperature_is_declared(dialect: Dialect) -> None:
    with LlmDouble() as llm:
        newest = f"{llm.url}/newest"
        assert endpoint(newest, dialect).complete(ASK, TOOLS, {"max_tokens": 9}, 3).tool_calls
        with pytest.raises(ProviderError) as caught:
            endpoint(newest, dialect).complete(ASK, TOOLS, {"max_tokens": 9, "temperature": 0.7})
    assert caught.value.fault == "refused"


@pytest.mark.parametrize(
    ("sampling", "sent"),
    [
        ({}, {"type": "disabled"}),
        ({"thinking": {"type": "adaptive"}}, {"type": "adaptive"}),
        ({"thinking": None}, None),
    ],
)
def test_anthropics_models_are_told_whether_to_think(sampling: dict[str, Any], sent: object) -> None:
    with LlmDouble() as llm:
        endpoint(llm.url, "anthropic").complete(ASK, sampling=sampling)
        assert llm.log[0].body.get("thinking") == sent


@pytest.mark.parametrize("blank", ["\n\n", " ", ""])
def test_blank_words_beside_a_call_are_not_sent_again(blank: str) -> None:
    with LlmDouble() as llm:
        model = endpoint(llm.url, "anthropic")
        assert model.complete(calling("look", text=blank), TOOLS).tool_calls
        assert model.complete([*ASK, {"role": "assistant", "content": blank}, *ASK], TOOLS).tool_calls
        first, second = (entry.body["messages"] for entry in llm.log)
    assert [block["type"] for block in first[1]["content"]] == ["tool_use"]
    assert [message["role"] for message in second] == ["user", "user"]


# --- what was paid ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["compatible", "openai", "anthropic"])
@pytest.mark.parametrize("fault", ["silent", "wrong-model", "no-choices", "error-in-200", "broke-off"])
def test_the_tokens_of_an_answer_that_is_a_fault_are_counted(fault: str, dialect: Dialect) -> None:
    with LlmDouble() as llm:
        model = endpoint(f"{llm.url}/fault-{fault}", dialect)
        with pytest.raises(ProviderError) as caught:
            model.complete(ASK)
    tally = model.calls.tally()
    assert (tally.prompt_tokens, tally.completion_tokens) == (200, 14), "of both attempts"
    assert (caught.value.usage.prompt_tokens, caught.value.usage.completion_tokens) == (100, 7)


# --- calls and thoughts that the server left in the words -------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        HERMES,
        CODER,
        f"I will look east.\n\n{HERMES}",
        '[TOOL_CALLS] [{"name": "look", "arguments": {}}]',
        '[TOOL_CALLS]look[ARGS]{"heading_deg": 90}',
        '<|python_tag|>{"name": "look", "parameters": {}}',
        '<tool_call>{"function": {"name": "look", "arguments": {}}}</tool_call>',
        '<function_calls>\n<invoke name="look">\n</invoke>\n</function_calls>',
        "<tool_call>look\n<arg_key>heading_deg</arg_key>\n<arg_value>90</arg_value>\n</tool_call>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{}",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{}\n```",
    ],
)
def test_a_call_that_came_through_as_text_is_the_endpoints_fault(text: str) -> None:
    assert call_as_text(text, {"look", "submit_guess"}) == "look"
    with LlmDouble(lambda _: Said(text)) as llm:
        model = endpoint(llm.url)
        with pytest.raises(ProviderError, match="call of look by m as plain text") as caught:
            model.complete(ASK, TOOLS)
        assert len(llm.log) == 1, "it would come through again"
        assert model.complete(ASK).text == text, "where no tools are on offer it is nothing but words"
    assert caught.value.fault == "call_as_text"
    assert "tool_parser" in caught.value.fix


@pytest.mark.parametrize(
    "text",
    [
        "Munich, 48.1, 11.6",
        "I would call look(90) now.",
        "<tool_call>",
        '<tool_call>\n{"name": "look", "arguments": {"heading_deg": }}\n</tool_call>',
        '<tool_call>\n{"name": "look", "argu',
        '<tool_call>\n{"name": "teleport", "arguments": {}}\n</tool_call>',
        "<function=look>\n<parameter=heading_deg>\n90",
        "<tool_call>" * 3000,
        "<function=look>" * 3000,
        '<tool_call>{"name": ' + "[" * 9000,
    ],
)
def test_a_broken_call_is_the_models_own(text: str) -> None:
    assert call_as_text(text, {"look", "submit_guess"}) == ""
    with LlmDouble(lambda _: Said(text)) as llm:
        assert endpoint(llm.url).complete(ASK, TOOLS).text == text


def test_once_calls_were_read_what_is_left_as_text_is_the_models_own() -> None:
    def brain(request: Request) -> Said:
        return Said("", [("look", {})]) if "call" in request.words else Said(HERMES)

    with LlmDouble(brain) as llm:
        model = endpoint(llm.url)
        with pytest.raises(ProviderError, match="plain text"):
            model.complete(ASK, TOOLS)
        assert model.complete([{"role": "user", "content": "call"}], TOOLS).tool_calls
        assert model.complete(ASK, TOOLS).text == HERMES
        told = endpoint(llm.url)
        told.reads_calls()
        assert told.complete(ASK, TOOLS).text == HERMES


@pytest.mark.parametrize(
    ("said", "text", "thoughts"),
    [
        ("<think>\nA road.\n</think>\n\nred", "red", "A road."),
        ("A road.\n</think>\n\nred", "red", "A road."),
        ("<think>\nA road, and", "", "A road, and"),
        ("<think>\n\n</think>\n\nred", "red", ""),
        ("red", "red", ""),
        ("I <think> so", "I <think> so", ""),
        ("I <think> so </think>", "I <think> so </think>", ""),
    ],
)
def test_thoughts_that_the_server_left_in_are_taken_out(said: str, text: str, thoughts: str) -> None:
    assert without_thoughts(said) == (text, thoughts)
    with LlmDouble(lambda _: Said(said)) as llm:
        reply = endpoint(llm.url).complete(ASK)
    assert (reply.text, reply.reasoning) == (text, thoughts)


# --- JSON of any depth ------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 6, 300, 600, 900, 990, 5000, 100_000])
def test_no_depth_ends_its_reader(depth: int) -> None:
    text = '{"a":' + "[" * depth + "1" + "]" * depth + "}"
    try:
        value = read_json(text)
    except ValueError:
        assert depth >= 900
        return
    assert depth_of(value) == depth + 1
    assert depth_of(with_strings(value, str.upper)) == depth + 1
    assert write_json(value).replace(" ", "") in (text, TOO_DEEP.replace(" ", ""))


def test_strings_are_changed_wherever_they_stand_and_nothing_else_is() -> None:
    said = {"b": ["secret-key", {"secret-key": 1, "x": [None, True, 2.5]}], "a": {}, "c": []}
    hidden = {"b": ["***", {"***": 1, "x": [None, True, 2.5]}], "a": {}, "c": []}
    assert cut(said, "secret-key") == hidden
    assert list(cut(said, "secret-key")) == ["b", "a", "c"]


@pytest.mark.parametrize("dialect", ["compatible", "anthropic"])
def test_deep_arguments_are_the_models_doing_in_every_shape(dialect: Dialect) -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    with LlmDouble(lambda _: Said("", [("look", {"a": deep})])) as llm:
        reply = endpoint(llm.url, dialect).complete(ASK, TOOLS)
    assert depth_of(json.loads(reply.tool_calls[0].arguments)) == 501
