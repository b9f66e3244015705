"""The arms file: what it declares, and one clear sentence for everything wrong with it."""

from pathlib import Path

import pytest

from geo_assets.config.arms import ArmsFileError, UnknownArm, load_arms

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


def test_the_sandbox_has_five_policies_with_four_passes() -> None:
    arms = load_arms("sandbox")
    assert [arm.slug for arm in arms.arms] == [
        "noisy_oracle",
        "true_capital",
        "best_fixed_point",
        "random_land_point",
        "never_guesses",
    ]
    assert {arm.k for arm in arms.arms} == {4}
    assert arms.boards["sandbox"].ladder == tuple(arm.slug for arm in arms.arms)


def test_live_declares_the_fifteen_of_the_first_sweep() -> None:
    arms = load_arms("live")
    assert len(arms.arms) == 15
    assert arms.get("qwen3_5_4b").kind == "base"
    assert arms.boards["first_sweep"].base == "qwen3_5_4b"


def test_identity_leaves_out_what_cannot_alter_an_episode(tmp_path: Path) -> None:
    plain = load_arms("sandbox", write(tmp_path, GOOD)).get("one")
    knobs = load_arms(
        "sandbox",
        write(tmp_path, GOOD.replace("workers: 2", "workers: 8").replace("k: 4", "k: 8")),
    ).get("one")
    hotter = load_arms("sandbox", write(tmp_path, GOOD.replace("1.0", "0.5"))).get("one")
    assert plain.identity() == knobs.identity()
    assert plain.identity() != hotter.identity()


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
        ("    label: One\n", "    label: One\n    label: Two\n", "has the key 'label' twice"),
        ("workers: 2", "wrkers: 2", "unknown key 'runtime.wrkers'"),
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
