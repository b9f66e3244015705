"""The arms file: what it declares, and one clear sentence for everything wrong with it."""

import json
import tempfile
from pathlib import Path

import pytest

from env_service.errors import GeoError
from geo_assets.config.arms import ARMS_FILE, ArmsFileError, UnknownArm, load_arms
from geo_assets.config.arms_adding import add_arm
from geo_assets.sweeps.prompts import prompt

GOOD = """\
defaults:
  kind: policy
  protocol: tools
  k: 4
  max_turns: 12
  sampling: {temperature: 1.0}
  runtime: {workers: 2}
arms:
  - slug: one
    label: One
    provider: sandbox
    model: m
    profiles: [sandbox]
boards:
  main: {label: Main, profiles: [sandbox], base: one, ladder: [one]}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "arms.yaml"
    path.write_text(text)
    return path


def test_the_sandbox_has_nine_arms_with_four_passes() -> None:
    arms = load_arms("sandbox")
    assert [arm.slug for arm in arms.arms] == [
        "noisy_oracle",
        "true_capital",
        "best_fixed_point",
        "random_land_point",
        "never_guesses",
        "fabricates",
        "answers_in_prose",
        "slow_and_limited",
        "true_capital_json",
    ]
    assert {arm.k for arm in arms.arms} == {4}
    for board in arms.boards.values():
        assert {arms.get(slug).protocol for slug in board.ladder} == {"tools"}, "no board mixes protocols"


def test_live_declares_the_fifteen_of_the_first_sweep() -> None:
    arms = load_arms("live")
    assert len(arms.arms) == 15
    assert arms.get("qwen3_5_4b").kind == "base"
    assert arms.boards["first_sweep"].base == "qwen3_5_4b"
    published = arms.boards["published_board"]
    assert (published.base, len(published.ladder)) == ("qwen3_5_4b", 10)


def test_identity_leaves_out_what_cannot_alter_an_episode(tmp_path: Path) -> None:
    plain = load_arms("sandbox", write(tmp_path, GOOD)).get("one")
    knobs = load_arms(
        "sandbox",
        write(tmp_path, GOOD.replace("workers: 2", "workers: 8").replace("k: 4", "k: 8")),
    ).get("one")
    hotter = load_arms("sandbox", write(tmp_path, GOOD.replace("1.0", "0.5"))).get("one")
    assert plain.identity() == knobs.identity()
    assert plain.identity() != hotter.identity()
    told = load_arms("sandbox", write(tmp_path, GOOD.replace("protocol: tools", "protocol: json"))).get("one")
    assert plain.identity()["prompt"] != told.identity()["prompt"]
    assert plain.identity()["prompt"] == prompt("tools").version


def test_a_budget_without_a_price_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace("{workers: 2}", "{budget_usd: 3}")
    with pytest.raises(ArmsFileError, match="budget_usd needs the arm's price"):
        load_arms("sandbox", write(tmp_path, text))
    priced = text.replace("    model: m\n", "    model: m\n    price: {input_usd: 1, output_usd: 5}\n")
    assert load_arms("sandbox", write(tmp_path, priced)).get("one").runtime.budget_usd == 3


SERVED = """\
  - slug: served
    label: Served
    provider: self_hosted
    model: MODEL
    profiles: [sandbox]
"""


@pytest.mark.parametrize(
    ("model", "more", "problem"),
    [
        ("Qwen/Qwen3-VL-4B-Instruct", "", ""),
        ("owner/model", "", "nobody said what reads the calls of 'owner/model': name its tool_parser"),
        ("owner/model", "    tool_parser: hermes\n", ""),
        ("owner/model", "    protocol: json\n", ""),
        ("owner/model", "    base_url: http://127.0.0.1:8001/v1\n", ""),
        (
            "owner/model",
            "    base_url: http://127.0.0.1:8001/v1\n    tool_parser: hermes\n",
            "tool_parser is for a model that a job of ours serves",
        ),
        ("Qwen/Qwen3.5-4B", "    tool_parser: '--trust-remote-code'\n", "tool_parser is"),
        ("Qwen/Qwen3.5-4B", "    revision: --flag\n", "revision is"),
    ],
)
def test_what_reads_the_calls_of_a_served_model_is_known_or_said(
    tmp_path: Path, model: str, more: str, problem: str
) -> None:
    text = GOOD.replace("boards:", SERVED.replace("MODEL", model) + more + "boards:")
    if problem:
        with pytest.raises(ArmsFileError, match=problem):
            load_arms("sandbox", write(tmp_path, text))
    else:
        assert load_arms("sandbox", write(tmp_path, text)).get("served").model == model


@pytest.mark.parametrize(
    ("protocol", "thinking", "stands"),
    [
        ("tools", "{type: disabled}", True),
        ("tools", "null", True),
        ("tools", "{type: adaptive}", False),
        ("json", "{type: adaptive}", True),
    ],
)
def test_thoughts_that_the_next_turn_would_need_are_refused(
    tmp_path: Path, protocol: str, thinking: str, stands: bool
) -> None:
    arm = f"""\
  - slug: claude
    label: Claude
    provider: anthropic
    model: claude
    protocol: {protocol}
    sampling: {{extra: {{thinking: {thinking}}}}}
    profiles: [sandbox]
"""
    path = write(tmp_path, GOOD.replace("boards:", arm + "boards:"))
    if stands:
        assert load_arms("sandbox", path).get("claude").protocol == protocol
    else:
        with pytest.raises(ArmsFileError, match="thinking is not carried from turn to turn"):
            load_arms("sandbox", path)


# --- geo new-arm ------------------------------------------------------------------------------------------

NEW = {
    "slug": "two",
    "label": "No: 'two' #2",
    "provider": "openai_compatible",
    "model": "yes",
    "protocol": "json",
}


def test_a_new_arm_touches_nothing_that_stands_there(tmp_path: Path) -> None:
    path = write(tmp_path, "# a comment\n" + GOOD.replace("boards:", "# another\nboards:"))
    before = path.read_text()
    arm = add_arm({**NEW, "base_url": "http://127.0.0.1:1/v1", "profiles": ["sandbox"]}, "main", path)
    assert (arm.slug, arm.label, arm.model, arm.protocol, arm.k) == ("two", NEW["label"], "yes", "json", 4)
    arms = load_arms("sandbox", path)
    assert [found.slug for found in arms.arms] == ["one", "two"]
    assert arms.boards["main"].ladder == ("one", "two")
    after = path.read_text().splitlines()
    kept = [line for line in before.splitlines() if "ladder" not in line]
    assert [line for line in after if line in kept] == kept
    assert len(after) == len(before.splitlines()) + 7


def test_a_new_arm_in_the_project_s_own_file_at_the_end_of_a_ladder_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text(ARMS_FILE.read_text())
    served = {"base_url": "http://127.0.0.1:1/v1", "protocol": "tools", "profiles": ["live"]}
    add_arm({**NEW, **served}, "first_sweep", path)
    assert load_arms("live", path).boards["first_sweep"].ladder[-1] == "two"
    lines = ARMS_FILE.read_text().splitlines()
    assert [line for line in path.read_text().splitlines() if line in lines][: len(lines)] == lines


@pytest.mark.parametrize(
    ("changes", "board", "sentence"),
    [
        ({"slug": "one"}, "", "has an arm 'one' already"),
        ({"slug": "Not-A-Slug"}, "", "Nothing was written: .*slug is 'Not-A-Slug'"),
        ({"provider": "nobody"}, "", "Nothing was written: .*provider is 'nobody'"),
        ({}, "side", "has no board 'side'.*It has: main"),
        ({"profiles": ["live"]}, "main", "Nothing was written: .*profile sandbox does not have"),
    ],
)
def test_a_new_arm_that_cannot_be_leaves_the_file_as_it_was(
    tmp_path: Path, changes: dict[str, object], board: str, sentence: str
) -> None:
    path = write(tmp_path, GOOD)
    with pytest.raises(GeoError, match=sentence):
        add_arm({**NEW, "base_url": "http://h/v1", "profiles": ["sandbox"], **changes}, board, path)
    assert path.read_text() == GOOD


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"slug": "adapter_run3"}, "slug 'adapter_run3' cannot begin with adapter_"),
        ({"slug": "sweep_mine"}, "slug 'sweep_mine' cannot begin with sweep_"),
        ({"base_url": ""}, "provider openai_compatible has no address of its own"),
        ({"base_url": "ftp://h/v1"}, "base_url is no http or https address"),
        ({"base_url": "127.0.0.1:8001/v1"}, "base_url is no http or https address"),
        ({"base_url": "http:///v1"}, "base_url is no http or https address"),
        ({"base_url": "http://h:99999/v1"}, "base_url is no address"),
        ({"base_url": "http://h/v1?key=hunter2"}, "base_url holds more than an address"),
        ({"base_url": "http://me:hunter2@h/v1"}, "base_url holds a user or a password"),
        ({"base_url": "me:hunter2@h/v1"}, "base_url holds a user or a password"),
        ({"base_url": "http://hunter2@h/v1", "provider": "nobody"}, "base_url holds a user or a password"),
    ],
)
def test_an_arm_that_could_never_run_is_refused_when_it_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], sentence: str
) -> None:
    path = write(tmp_path, GOOD)

    def refuse(*args: object, **more: object) -> None:
        raise AssertionError("a file was written")

    arm = {**NEW, "base_url": "http://h/v1", "profiles": ["sandbox"], **changes}
    with monkeypatch.context() as patched, pytest.raises(GeoError, match=f"Nothing was written: {sentence}"):
        patched.setattr(tempfile, "TemporaryDirectory", refuse)
        add_arm(arm, "", path)
    typed = "".join(f"    {name}: {json.dumps(value)}\n" for name, value in arm.items())
    written = write(tmp_path, GOOD.replace("boards:", f"  -\n{typed}boards:"))
    with pytest.raises(ArmsFileError, match=sentence) as error:
        load_arms("sandbox", written)
    assert "hunter2" not in str(error.value)


def test_an_unknown_arm_names_the_known_ones() -> None:
    with pytest.raises(UnknownArm, match=r"no arm 'oracle' in profile sandbox.*noisy_oracle, true_capital"):
        load_arms("sandbox").get("oracle")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "    model: m\n",
            "    model: m\n    colour: red\n",
            "arm 'one': unknown key 'colour'",
        ),
        ("    model: m\n", "", "arm 'one': model is missing"),
        ("slug: one", "slug: One-1", "arms.yaml:9: arm 'One-1': slug is 'One-1'"),
        ("protocol: tools", "protocol: telepathy", "protocol is 'telepathy'"),
        ("provider: sandbox", "provider: nobody", "arms.yaml:11: arm 'one': provider is 'nobody'"),
        ("    label: One", "    label: [One", r"arms.yaml:\d+: broken YAML"),
        ("base: one", "base: two", "names arm 'two', which profile sandbox does not have"),
        ("arms:\n", "extra: 1\narms:\n", "unknown key 'extra'"),
        (
            "    label: One\n",
            "    label: One\n    label: Two\n",
            r"arms\.yaml:11: the key 'label' stands here twice",
        ),
        ("workers: 2", "wrkers: 2", r"arms\.yaml:7: .*unknown key 'runtime.wrkers'"),
        ("    model: m\n", "    model: m\n    yes: 1\n", r"arms\.yaml:9: arm 'one'"),
        ("arms:\n", "", r"arms\.yaml:\d+"),
        ("  main:", "  a/b:", r"arms\.yaml:15: board 'a/b': the name becomes a file name"),
        ("base: one", "base: nobody", r"arms\.yaml:15: board 'main' names arm 'nobody'"),
        ("label: One", 'label: "One\\e[31m"', r"arms\.yaml:10: arm 'one': label is"),
        (
            "{temperature: 1.0}",
            "{extra: {model: other}}",
            r"arms\.yaml:6: arm 'one': .*model is not said in extra",
        ),
    ],
)
def test_mistakes_are_one_sentence_with_a_line(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in GOOD
    with pytest.raises(ArmsFileError, match=sentence):
        load_arms("sandbox", write(tmp_path, GOOD.replace(old, new, 1)))


def test_a_repeated_slug_names_both_lines(tmp_path: Path) -> None:
    arm = GOOD.split("arms:\n")[1].split("boards:")[0]
    with pytest.raises(ArmsFileError, match=r"arms\.yaml:14: arm 'one' appears twice, first on line 9"):
        load_arms("sandbox", write(tmp_path, GOOD.replace("boards:", arm + "boards:")))


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("!foo 4", "of a kind that is not read here"),
        ("!!python/object:os.system x", "of a kind that is not read here"),
        ('!!binary "\u00fc"', "of a kind that is not read here"),
        ("!!int abc", "'abc' is no int"),
        ("!!float abc", "'abc' is no float"),
        ("!!bool maybe", "'maybe' is no bool"),
        ("!!str {a: 1}", "this is no str"),
        ("2026-13-45", "a date"),
        ("2026-12-05", "a date"),
        ("{<<: 3}", "a merge key"),
        ("{[1, 2]: 3}", "a key must be a word"),
        ("{{a: 1}: 3}", "a key must be a word"),
        ("{a: 1, a: 2}", "the key 'a' stands here twice"),
        (".nan", "no finite number"),
        ("-.inf", "no finite number"),
        ("1.0e+999", "no finite number"),
        ("9" * 5000, "is no int"),
        ('"\\ud800"', "is no str"),
        ("&a {x: *a}", "an alias refers to what holds it"),
        ("*nobody", "undefined alias"),
        ("[" * 5000, "more than 40 maps and lists"),
        ("{a: " * 100 + "1" + "}" * 100, "more than 40 maps and lists"),
        ("\x00", "character #x0000 is not allowed"),
        ("\t- a", "broken YAML"),
    ],
)
def test_what_is_no_plain_value_is_refused_where_it_stands(tmp_path: Path, said: str, problem: str) -> None:
    text = GOOD.replace("{temperature: 1.0}", f"{{extra: {{x: {said}}}}}")
    with pytest.raises(ArmsFileError, match=problem) as caught:
        load_arms("sandbox", write(tmp_path, text))
    assert caught.value.line == 6


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9))]
    text = GOOD.replace("{temperature: 1.0}", "{extra: {" + ", ".join(rows) + "}}")
    with pytest.raises(ArmsFileError, match="aliases make the file too large"):
        load_arms("sandbox", write(tmp_path, text))


def test_a_file_that_is_no_text_or_not_there(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    path.write_bytes(path.read_bytes() + b"# \xff\xfe")
    with pytest.raises(ArmsFileError, match=r"arms\.yaml:16: byte 0xff is no UTF-8"):
        load_arms("sandbox", path)
    with pytest.raises(ArmsFileError, match=r"arms\.yaml:1: the file is empty"):
        load_arms("sandbox", write(tmp_path, "# nothing\n"))
    with pytest.raises(ArmsFileError, match=r"cannot be read \(No such file"):
        load_arms("sandbox", tmp_path / "absent.yaml")
