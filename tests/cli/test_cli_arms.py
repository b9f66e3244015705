"""`geo probe`, `geo replay` and `geo new-arm`, typed as a person types them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "sweeps"))
sys.path.insert(0, str(REPOSITORY / "tests" / "doubles"))

from llm_double import LlmDouble, guesses  # noqa: E402
from llm_shapes import Request, Said, card  # noqa: E402
from sweeps_lab import build_environment, double_arm, endpoint_at, lab_arm, lab_run  # noqa: E402

from geo_assets.config.arms import PriceSpec  # noqa: E402
from geo_assets.sweeps.factory import sweep_arm  # noqa: E402
from geo_assets.sweeps.probing import probe_arm  # noqa: E402
from geo_assets.sweeps.serving import served_environment  # noqa: E402

SCHEMA = json.loads((REPOSITORY / "docs" / "schemas" / "probe.json").read_text())


def geo(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "geo_assets.cli", *words],
        env={**os.environ, "GEO_HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with an environment of three tasks, and one arm swept once."""
    home = tmp_path_factory.mktemp("home")
    build_environment(home, 3)
    sweep_arm(lab_run(home, "sweep_noisy_oracle"), lab_arm("noisy_oracle", k=1))
    return home


def test_probe_of_a_policy_fits_its_schema(home: Path) -> None:
    done = geo(home, "probe", "true_capital_json", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    assert found["ok"]
    assert (found["serves"]["id"], found["sight"]["seen"]) == ("true-capital", 3)
    assert (found["turn"]["tool"], found["calls"]["answered"]) == ("look", 4)


def test_replay_writes_the_frames_and_names_the_first_difference(home: Path, tmp_path: Path) -> None:
    done = geo(home, "replay", "noisy_oracle/1/0", "--out", str(tmp_path / "frames"))
    assert done.returncode == 0, done.stderr
    frames = sorted(path.name for path in (tmp_path / "frames").iterdir())
    assert frames[0] == "00-opening.jpg"
    assert f"{len(frames)} pictures have the hashes of the record" in done.stdout
    episodes = home / "sweeps/noisy_oracle/episodes.jsonl"
    other = tmp_path / "sweeps" / "altered"
    other.mkdir(parents=True)
    body = json.loads(episodes.read_text().splitlines()[1])
    body["turns"][0]["image_sha256"] = "0" * 64
    (other / "episodes.jsonl").write_text(json.dumps(body) + "\n")
    failed = geo(home, "replay", f"{other}/1/0")
    assert failed.returncode == 1
    assert "task 1, sample 0: turn 1 does not replay: its picture is" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("replay", "noisy_oracle"), "names no episode. Write ARM/TASK/SAMPLE"),
        (("replay", "noisy_oracle/9/0"), "holds no episode of task 9, sample 0"),
        (("replay", "nobody/0/0"), "There are: noisy_oracle"),
        (("probe", "nobody"), "There is no arm 'nobody'"),
    ],
)
def test_what_does_not_exist_is_one_sentence(home: Path, words: tuple[str, ...], sentence: str) -> None:
    done = geo(home, *words)
    assert done.returncode == 1
    assert sentence in done.stderr.replace("\n", " ")
    assert len(done.stderr.strip().splitlines()) == 1


def test_new_arm_declares_it(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text((REPOSITORY / "geo_assets/config/arms.yaml").read_text())
    typed = ["new-arm", "mine", "--model", "my-model", "--base-url", "http://127.0.0.1:8001/v1"]
    done = geo(home, *typed, "--profile", "sandbox", "--file", str(path))
    assert done.returncode == 0, done.stderr
    assert "it is the asset sweep_mine now" in done.stdout
    again = geo(home, *typed, "--file", str(path))
    assert (again.returncode, "has an arm 'mine' already" in again.stderr) == (1, True)
    served = ["new-arm", "ours", "--model", "owner/model", "--provider", "self_hosted", "--file", str(path)]
    refused = geo(home, *served)
    assert (refused.returncode, "name its tool_parser" in refused.stderr.replace("\n", " ")) == (1, True)
    assert geo(home, *served, "--tool-parser", "hermes").returncode == 0


# --- the probe against endpoints with faults --------------------------------------------------------------


@pytest.fixture(scope="module")
def env_url(home: Path) -> Any:
    with served_environment(home / "eval_environment" / "config.json", 2) as served:
        yield served.url


def probed(env_url: str, llm: LlmDouble, **changes: object) -> dict[str, Any]:
    arm = double_arm(price=PriceSpec(input_usd=1.0, output_usd=5.0), **changes)
    found = probe_arm(arm, endpoint_at(llm.url, arm, attempts=2), env_url)
    jsonschema.validate(json.loads(json.dumps(found)), SCHEMA)
    return found


def test_a_turn_has_tokens_and_a_price(env_url: str) -> None:
    with LlmDouble() as llm:
        found = probed(env_url, llm)
    assert found["ok"]
    assert found["turn"]["usd"] == pytest.approx((100 * 1.0 + 7 * 5.0) / 1e6)
    assert found["turn"]["tool"] == "submit_guess"


def test_everything_that_is_wrong_is_said_at_once(env_url: str) -> None:
    def blind(request: Request) -> Said:
        return Said("red" if not request.tools else "I cannot call tools.")

    with LlmDouble(blind, cards=[card("m", None, "base")]) as llm:
        found = probed(env_url, llm)
    assert not found["ok"]
    said = " | ".join(found["problems"])
    assert "as an adapter on base" in said
    assert "does not see its pictures" in said
    assert "calls no tool" in said
    with LlmDouble(guesses()) as llm:
        found = probe_arm(
            double_arm(), endpoint_at(f"{llm.url}/fault-500", double_arm(), attempts=1), env_url
        )
    jsonschema.validate(json.loads(json.dumps(found)), SCHEMA)
    assert (found["turn"], found["calls"]["server"]) == (None, 2)
    assert all(problem.startswith("server: ") for problem in found["problems"])
