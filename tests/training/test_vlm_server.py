"""The model server as a client sees it: a real process, a real tiny model, real adapters, over HTTP."""

import base64
import io
import json
import shutil
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

LAB = Path(__file__).parent
sys.path[:0] = [str(LAB), str(LAB.parent / "sweeps")]

from vlm_lab import ADAPTER, BASE, Tools, asked, build_adapter, build_base, called, data_url  # noqa: E402

from env_service.errors import GeoError  # noqa: E402
from resources.endpoints import ChatEndpoint, ProviderError  # noqa: E402
from resources.processes import ServerProcess  # noqa: E402
from resources.sandbox.vlm.conversation import BadRequest, read_request  # noqa: E402
from resources.sandbox.vlm.generation import ServedWrongly, TinyModels  # noqa: E402
from resources.sandbox.vlm.server import main  # noqa: E402

MODULE = "resources.sandbox.vlm.server"
WORDS = "Where is this? You have 12 turns in all.\nFacing N."


def tool(name: str, *numbers: str) -> dict[str, Any]:
    properties = {number: {"type": "number"} for number in numbers}
    parameters = {"type": "object", "properties": properties, "required": list(numbers)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


BAD_CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": "{"}}]}
TOOLS: Tools = [tool("look", "heading_deg"), tool("submit_guess", "lat", "lon")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("models")
    build_base(home / "base", asked(WORDS, 1), TOOLS)
    build_adapter(home / "base", home / "adapter")
    build_adapter(home / "base", home / "second", seed=2)
    build_adapter(home / "base", home / "nothing", strength=0.0)
    return {name: home / name for name in ("base", "adapter", "second", "nothing")}


@pytest.fixture(scope="module")
def url(folders: dict[str, Path]) -> Iterator[str]:
    options = ["--base", f"{BASE}={folders['base']}"]
    for name, key in ((ADAPTER, "adapter"), ("adapter_two", "second"), ("adapter_nothing", "nothing")):
        options += ["--adapter", f"{name}={folders[key]}"]
    with ServerProcess(MODULE, options, name="model server", start_timeout_s=180) as server:
        yield server.url


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> TinyModels:
    return TinyModels(BASE, folders["base"], {ADAPTER: folders["adapter"]})


def body(**changes: Any) -> dict[str, Any]:
    given = {"model": BASE, "messages": asked(WORDS, 1), "tools": TOOLS, "seed": 3, "max_tokens": 40}
    return {**given, **changes}


def post(url: str, **changes: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json=body(**changes), timeout=60, trust_env=False)


def said(url: str, **changes: Any) -> dict[str, Any]:
    answer = post(url, **changes)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refused(url: str, status: int, **changes: Any) -> dict[str, Any]:
    answer = post(url, **changes)
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_models_are_listed_as_vllm_lists_them(url: str, folders: dict[str, Path]) -> None:
    listed = httpx.get(f"{url}/v1/models", trust_env=False).json()
    assert listed["object"] == "list"
    base, adapter, *_ = listed["data"]
    assert (base["id"], base["root"], base["parent"]) == (BASE, str(folders["base"]), None)
    assert base["max_model_len"] == 4096
    assert (adapter["id"], adapter["root"], adapter["parent"]) == (ADAPTER, str(folders["adapter"]), BASE)
    for entry in listed["data"]:
        assert set(entry) == {
            "id", "object", "created", "owned_by", "root", "parent", "max_model_len", "permission"
        }  # fmt: skip
    assert httpx.get(f"{url}/health", trust_env=False).json() == {"status": "ok"}


def test_calls_come_back_in_openais_form(url: str) -> None:
    replies = [said(url, seed=seed) for seed in range(12)]
    calls = [c for reply in replies for c in reply["choices"][0]["message"].get("tool_calls", ())]
    assert {call["function"]["name"] for call in calls} == {"look", "submit_guess"}
    for call in calls:
        assert call["type"] == "function"
        assert isinstance(json.loads(call["function"]["arguments"]), dict)
    for reply in replies:
        choice, usage = reply["choices"][0], reply["usage"]
        assert choice["finish_reason"] in ("tool_calls", "stop", "length")
        assert (choice["finish_reason"] == "tool_calls") == bool(choice["message"].get("tool_calls"))
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert 1 <= usage["completion_tokens"] <= 40
        assert reply["model"] == BASE


def test_the_client_of_the_sweeps_reads_it(url: str) -> None:
    endpoint = ChatEndpoint(f"{url}/v1", ADAPTER, attempts=1)
    reply = endpoint.complete(asked(WORDS, 4), TOOLS, {"temperature": 1.0, "max_tokens": 40}, seed=2)
    assert reply.model_reported == ADAPTER
    assert reply.finish_reason
    assert reply.usage.prompt_tokens > 20
    with pytest.raises(ProviderError, match=r"404.*There is no model 'nobody'; there are base_model_4b"):
        ChatEndpoint(f"{url}/v1", "nobody", attempts=1).complete(asked(WORDS, 4))


def test_equal_requests_get_equal_answers_alone_and_in_company(url: str) -> None:
    """Three models, unlike lengths, one or two pictures, all at once: every answer is what it was alone."""
    requests = [
        {
            "model": (BASE, ADAPTER, "adapter_two")[number % 3],
            "messages": asked(f"{WORDS} {'word ' * (number % 5)}", *range(number, number + 1 + number % 2)),
            "seed": number % 4,
        }
        for number in range(36)
    ]
    alone = [said(url, **request) for request in requests]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda request: said(url, **request), requests))
    assert together == alone


def test_seed_conversation_and_picture_each_move_the_noise(models: TinyModels) -> None:
    def key(**changes: Any) -> str:
        return models.prepared(read_request(body(**changes), models.pictures)).key

    keys = [
        key(),
        key(seed=4),
        key(messages=asked(f"{WORDS}!", 1)),
        key(messages=asked(WORDS, 2)),
        key(model=ADAPTER),
    ]
    assert len(set(keys)) == len(keys)
    assert key() == keys[0]


def test_draws_follow_the_distribution(url: str) -> None:
    """The first token where replies part: Gumbel-max must draw it as often as its probability says."""
    likely = said(url, temperature=0, logprobs=True, top_logprobs=20)["choices"][0]["logprobs"]["content"]
    parting = next(n for n, token in enumerate(likely) if token["logprob"] < -0.2)
    before = [token["token"] for token in likely[:parting]]
    wanted = {entry["token"]: entry["logprob"] for entry in likely[parting]["top_logprobs"][:2]}
    with ThreadPoolExecutor(12) as pool:
        drawn = list(pool.map(lambda seed: said(url, seed=seed, logprobs=True), range(160)))
    tokens = [reply["choices"][0]["logprobs"]["content"] for reply in drawn]
    tokens = [row for row in tokens if [t["token"] for t in row[:parting]] == before and len(row) > parting]
    assert len(tokens) > 80
    for token, logprob in wanted.items():
        share, p = sum(row[parting]["token"] == token for row in tokens) / len(tokens), 2.718281828**logprob
        assert abs(share - p) < 4.5 * (p * (1 - p) / len(tokens)) ** 0.5


def test_temperature_0_is_greedy_and_truncation_narrows(url: str) -> None:
    greedy = [said(url, temperature=0, seed=seed)["choices"] for seed in range(3)]
    assert greedy[0] == greedy[1] == greedy[2] or greedy[0][0]["message"].get("tool_calls")
    contents = [json.dumps(g[0]["message"]).replace("call_", "")[:40] for g in greedy]
    assert len(set(contents)) == 1
    narrow = [said(url, top_k=1, temperature=2.0, seed=seed) for seed in range(3)]
    tight = [said(url, top_p=1e-6, temperature=2.0, seed=seed) for seed in range(3)]
    words = [function_of(reply) for reply in (*narrow, *tight)]
    assert set(words) == {function_of({"choices": greedy[0]})}


def function_of(reply: dict[str, Any]) -> str:
    message = reply["choices"][0]["message"]
    return json.dumps([call["function"] for call in message.get("tool_calls", ())]) + str(message["content"])


def test_adapters_speak_for_themselves_and_the_base_is_untouched(url: str) -> None:
    def logprobs(model: str) -> list[float]:
        reply = said(url, model=model, temperature=0, logprobs=True, max_tokens=3)
        return [token["logprob"] for token in reply["choices"][0]["logprobs"]["content"]]

    base = logprobs(BASE)
    first, second, nothing = (logprobs(n) for n in (ADAPTER, "adapter_two", "adapter_nothing"))
    assert first != base
    assert second not in (base, first)
    assert nothing == base
    assert logprobs(BASE) == base


def test_the_base_with_adapters_loaded_is_the_base_without(
    models: TinyModels, folders: dict[str, Path]
) -> None:
    bare = TinyModels(BASE, folders["base"], {})
    rows = [bare.prepared(read_request(body(seed=seed), bare.pictures)) for seed in range(4)]
    assert bare.replies(rows) == models.replies(rows)


def test_a_whole_conversation_with_calls_and_later_pictures_is_rendered(models: TinyModels) -> None:
    look = called("look", heading_deg=90.5)
    arguments = json.dumps(look["tool_calls"][0]["function"]["arguments"])
    look["tool_calls"][0]["function"]["arguments"] = arguments
    look["tool_calls"][0]["id"], look["content"] = "c1", None
    messages = [
        *asked(WORDS, 1),
        look,
        {"role": "tool", "content": "Facing E.", "tool_call_id": "c1"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Picture after look:"}, asked("", 2)[0]["content"][1]],
        },
    ]
    request = read_request(body(messages=messages), models.pictures)
    text = models.rendered(request)
    assert "<function=look>\n<parameter=heading_deg>\n90.5\n</parameter>\n</function>" in text
    assert "<tool_response>\nFacing E.\n</tool_response>" in text
    assert "Picture after look:<|vision_start|><|image_pad|><|vision_end|><|im_end|>" in text
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    row = models.prepared(request)
    grid = row.inputs["image_grid_thw"]
    assert len(grid) == 2
    assert (
        int((row.inputs["input_ids"] == models.processor.image_token_id).sum())
        == int(grid.prod(-1).sum()) // 4
    )
    assert request.pictures[0].size == (64, 64)


def test_the_opening_reads_as_in_training(models: TinyModels) -> None:
    """TRL appends the environment's blocks to the row's prompt; a sweep sends one text and the picture."""
    prompt, feedback = WORDS.split("\n")
    picture = Image.new("RGB", (64, 64))
    trained = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": prompt},
                {"type": "text", "text": f"\n{feedback}"},
                {"type": "image", "image": picture},
            ],
        }
    ]
    text = models.processor.apply_chat_template(
        trained, tools=TOOLS, add_generation_prompt=True, tokenize=False
    )
    assert models.rendered(read_request(body(), models.pictures)) == text


def test_a_written_placeholder_is_refused_before_it_spoils_a_batch(models: TinyModels, url: str) -> None:
    error = refused(url, 400, messages=asked(f"{WORDS} <|image_pad|>", 1))
    assert "stands for a picture" in error["message"]
    with pytest.raises(BadRequest, match="surrogate"):
        read_request(body(messages=asked(f"{WORDS} \ud800", 1)), models.pictures)
    # However a picture is lost, the model is not asked about the place where it should be.
    whole = read_request(body(messages=asked(WORDS, 1)), models.pictures)
    with pytest.raises(ServedWrongly, match="1 picture places for 0 pictures"):
        models.prepared(replace(whole, pictures=(), digests=()))
    assert said(url)["choices"]


def test_pictures_are_scaled_as_training_scales_them(models: TinyModels) -> None:
    from resources.sandbox.vlm.processor import scaled

    for form in ("JPEG", "PNG"):
        url = data_url(5, 200, form)
        content = [{"type": "image_url", "image_url": {"url": url}}]
        request = read_request(body(messages=[{"role": "user", "content": content}]), models.pictures)
        original = Image.open(io.BytesIO(base64.b64decode(url.split(",")[1])))
        assert request.pictures[0].tobytes() == scaled(original, 64).tobytes()


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"model": "nobody"}, 404, "There is no model 'nobody'"),
        ({"messages": []}, 400, "`messages` must be a list"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, 400, "role must be one of"),
        ({"messages": [{"role": "user", "content": 7}]}, 400, "must be text or a list of parts"),
        ({"messages": [{"role": "system", "content": "x"}]}, 400, "chat template refuses"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, 400, "of type text or image_url"),
        ({"messages": [*asked("x"), BAD_CALL]}, 400, "must be a JSON object as text"),
        ({"tools": [{"name": "look"}]}, 400, "`tools` must be"),
        ({"tool_choice": "required"}, 400, "cannot be forced"),
        ({"temperature": -1}, 400, "`temperature` must be a number from 0 to 2"),
        ({"top_p": 0}, 400, "`top_p`"),
        ({"max_tokens": 0}, 400, "`max_tokens`"),
        ({"seed": "one"}, 400, "`seed`"),
        ({"stream": True}, 400, "`stream` is not served"),
        ({"n": 2}, 400, "`n` is not served"),
        ({"stop": ["a"] * 5}, 400, "`stop` must be a text or a list of 4 at most"),
        ({"stop": [""]}, 400, "`stop` holds something that is no text"),
        ({"chat_template_kwargs": {"enable_thinking": True}}, 400, "turn thinking off"),
        ({"max_tokens": 5000}, 400, "context is 4096 tokens"),
        ({"messages": asked("word " * 9000)}, 400, "context is 4096 tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused(
    url: str, changes: dict[str, Any], status: int, words: str
) -> None:
    assert words in refused(url, status, **changes)["message"]


def test_pictures_that_are_none_are_refused(url: str) -> None:
    for bad, words in (
        ("https://example.org/a.jpg", "data: addresses"),
        ("data:image/jpeg;base64,!!", "not valid base64"),
        (f"data:image/jpeg;base64,{base64.b64encode(b'GIF89a').decode()}", "no readable JPEG or PNG"),
        (data_url(1)[:-400], "no readable JPEG or PNG"),
    ):
        content = [{"type": "image_url", "image_url": {"url": bad}}]
        error = refused(url, 400, messages=[{"role": "user", "content": content}])
        assert words in error["message"]
        assert error["code"] == "invalid_image"


def test_http_faults(url: str) -> None:
    address = f"{url}/v1/chat/completions"
    assert httpx.post(address, content=b"{", trust_env=False).status_code == 400
    assert httpx.post(address, content=b"[1]", trust_env=False).status_code == 400
    assert httpx.post(f"{url}/v1/completions", json={}, trust_env=False).status_code == 404
    assert httpx.get(f"{url}/v2", trust_env=False).status_code == 404
    host, port = url.removeprefix("http://").split(":")
    for length, status in ((str(65 << 20), b"413"), ("many", b"400")):
        with socket.create_connection((host, int(port)), timeout=10) as line:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
            line.sendall(head.encode())
            assert line.recv(4096).split()[1] == status


def test_max_tokens_cuts_each_row_of_a_batch_at_its_own_length(models: TinyModels) -> None:
    wanted = (2, 9, 40)
    rows = [models.prepared(read_request(body(max_tokens=n), models.pictures)) for n in wanted]
    said_ = models.replies(rows)
    assert [reply.tokens for reply in said_[:2]] == [2, 9]
    assert [reply.finish_reason for reply in said_[:2]] == ["length", "length"]
    assert said_[2].finish_reason in ("tool_calls", "stop")


def test_vision_tokens_are_never_written(models: TinyModels) -> None:
    rows = [
        models.prepared(read_request(body(temperature=2.0, seed=seed, max_tokens=60), models.pictures))
        for seed in range(8)
    ]
    marks = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    assert not any(mark in json.dumps(reply.message) for reply in models.replies(rows) for mark in marks)


@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        ("Done.<|im_end|>", [], "Done."),
        ("<tool_call>\nlook 90</tool_call><|im_end|>", [], "<tool_call>\nlook 90</tool_call>"),
        (
            "<tool_call>\n<function=look>\n<parameter=heading_deg>\n90\n</parameter>\n</function>\n</tool_call>\n"
            "<tool_call>\n<function=fly>\n<parameter=to>\nRome\n</parameter>\n</function>\n</tool_call><|im_end|>",
            [("look", {"heading_deg": 90}), ("fly", {"to": "Rome"})],
            "",
        ),
    ],
)
def test_replies_are_parsed_as_in_training(
    models: TinyModels, text: str, calls: list[tuple[str, dict[str, Any]]], content: str
) -> None:
    row = models.prepared(read_request(body(max_tokens=400), models.pictures))
    ids = models.tokenizer(text)["input_ids"]
    reply = models._said(row, ids, [])
    found = [call["function"] for call in reply.message.get("tool_calls", ())]
    assert [(call["name"], json.loads(call["arguments"])) for call in found] == calls
    assert reply.message["content"] == content
    assert reply.finish_reason == ("tool_calls" if calls else "stop")


def test_a_stop_text_ends_the_reply_and_is_no_part_of_it(models: TinyModels) -> None:
    ids = models.tokenizer("Not here. STOP and more.<|im_end|>")["input_ids"]
    row = models.prepared(read_request(body(max_tokens=400, stop=["STOP", "never"]), models.pictures))
    reply = models._said(row, ids, [])
    assert (reply.message["content"].strip(), reply.finish_reason) == ("Not here.", "stop")
    assert reply.tokens < len(ids)
    whole = models.prepared(read_request(body(max_tokens=400, stop="nowhere"), models.pictures))
    assert models._said(whole, ids, []).message["content"] == "Not here. STOP and more."


def test_an_adapter_of_another_base_is_refused_at_the_start(
    folders: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    build_adapter(folders["base"], tmp_path / "other", name="base_model_2b")
    base, other = f"{BASE}={folders['base']}", tmp_path / "other"
    for adapter, words in (
        (
            f"{ADAPTER}={other}",
            "adapter_run3 was trained on base_model_2b and cannot be served on base_model_4b",
        ),
        (f"{BASE}={other}", "A name is served twice: base_model_4b, base_model_4b"),
        ("adapter_run3", "'adapter_run3' names no model and folder. Write it as NAME=DIR"),
    ):
        assert main(["--base", base, "--adapter", adapter]) == 1
        assert words in capsys.readouterr().err.strip().splitlines()[-1]


def test_adapters_that_do_not_fit_are_told_apart(folders: dict[str, Path], tmp_path: Path) -> None:
    build_base(tmp_path / "wide", asked(WORDS, 1), TOOLS, hidden=96)
    build_adapter(tmp_path / "wide", tmp_path / "adapter")
    with pytest.raises(
        GeoError, match=r"does not fit base_model_4b: its .*lora_A.weight is \(4, 96\), where"
    ):
        TinyModels(BASE, folders["base"], {ADAPTER: tmp_path / "adapter"})
    shutil.copytree(folders["adapter"], tmp_path / "torn")
    (tmp_path / "torn" / "adapter_model.safetensors").write_bytes(b"no weights")
    with pytest.raises(GeoError, match="holds no readable LoRA adapter"):
        TinyModels(BASE, folders["base"], {ADAPTER: tmp_path / "torn"})
    with pytest.raises(GeoError, match="holds no model"):
        TinyModels(BASE, tmp_path / "nowhere", {})


def test_a_message_without_a_picture_is_served_too(models: TinyModels) -> None:
    row = models.prepared(read_request(body(messages=asked("Hello")), models.pictures))
    assert "pixel_values" not in row.inputs
    with_picture = models.prepared(read_request(body(), models.pictures))
    assert len(models.replies([row, with_picture])) == 2
    with pytest.raises(BadRequest):
        read_request(body(messages="hello"), models.pictures)
