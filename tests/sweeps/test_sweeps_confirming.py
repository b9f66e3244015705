"""A sweep that is killed after its last episode and before its second look at the endpoint."""

from pathlib import Path

import pytest
from llm_double import LlmDouble
from llm_shapes import card
from sweeps_lab import build_environment, double_arm, lab_run

from geo_assets.reports.episode_report import episode_report
from geo_assets.sweeps.episode_file import read_episodes
from geo_assets.sweeps.factory import sweep_arm
from resources.endpoints import ChatEndpoint
from resources.replies import Card

TASKS = 3


class Killed(BaseException):
    """What no handler of the sweep's takes for a fault."""


@pytest.mark.parametrize(("root", "stands"), [("org/a", True), ("org/b", False)], ids=["the same", "another"])
def test_a_run_killed_before_its_second_look_is_looked_after_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, stands: bool
) -> None:
    build_environment(tmp_path, TASKS)
    folder, said, looks = tmp_path / "sweeps/double", list[str](), list[str]()
    asks = ChatEndpoint.cards

    def watched(self: ChatEndpoint) -> dict[str, Card]:
        looks.append("")
        if len(looks) == 4:  # the second look of the second run
            raise Killed
        return asks(self)

    monkeypatch.setattr(ChatEndpoint, "cards", watched)
    with LlmDouble(cards=[card("m", "org/a")]) as llm:

        def run(k: int) -> None:
            said.clear()
            arm = double_arm(k=k, base_url=f"{llm.url}/v1")
            made = sweep_arm(lab_run(tmp_path, "sweep_double", said), arm)
            assert {check.name for check in made.checks if not check.passed} == set()

        run(1)
        with pytest.raises(Killed):
            run(2)
        assert len(read_episodes(folder / "episodes.jsonl")) == 2 * TASKS
        assert (folder / "unconfirmed.json").exists()
        assert "was not confirmed" in str(episode_report([folder])["refused"])
        llm.cards[:] = [card("m", root)]
        played = sum(bool(entry.body.get("tools")) for entry in llm.log)
        run(2)
        assert len(looks) == 6, "before and after"
        again = sum(bool(entry.body.get("tools")) for entry in llm.log) - played
        assert again == (0 if stands else TASKS), "what the killed run played, and nothing else"
        assert len(list(folder.glob("quarantined/*"))) == (not stands)
        assert not (folder / "unconfirmed.json").exists()
        assert "was not confirmed" not in str(episode_report([folder])["refused"])
        run(2)
        assert said == [f"double: all {2 * TASKS} episodes are there; nothing is asked again"]
        assert len(looks) == 6
