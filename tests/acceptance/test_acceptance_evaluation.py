"""A sweep that is killed 50 times, and one whose provider fails a fifth of all calls in every way.

The first: `kill -9` at 50 random moments of a 40-task sweep of 4 passes. Only the process that sweeps is
killed; environment and model stay, as a provider would. At the end there are exactly 160 episodes, none
twice, and the table is that of an undisturbed sweep, byte for byte.

The second: an LLM server that fails 20 % of the calls, each way equally often, timeouts included. No fault is
ever scored, and the totals by cause add up to the calls that the server has seen.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "sweeps"))
sys.path.insert(0, str(TESTS / "doubles"))

from llm_double import LlmDouble, guesses  # noqa: E402
from llm_faults import CAUSE, FAULTS  # noqa: E402
from llm_shapes import Request, Said  # noqa: E402
from sweeps_lab import Lab, build_environment, double_arm, endpoint_at  # noqa: E402

from geo_assets.sweeps.episode_file import read_episodes  # noqa: E402
from geo_assets.sweeps.outcomes import OUTCOMES, write_outcomes  # noqa: E402
from geo_assets.sweeps.serving import served_environment  # noqa: E402
from geo_assets.sweeps.sidecar import read_outcomes  # noqa: E402
from geo_assets.sweeps.spending import read_calls  # noqa: E402
from resources.replies import ANSWERED  # noqa: E402

pytestmark = pytest.mark.slow

TASKS, PASSES, KILLS = 40, 4, 50
EPISODES = TASKS * PASSES
NURSERY = """
import os, sys
sys.path[:0] = [{sweeps!r}, {doubles!r}]
from pathlib import Path
import openai
from sweeps_lab import Lab, double_arm, endpoint_at
arm, folder = double_arm(k={k}), Path({folder!r})
for line in sys.stdin:
    child = os.fork()
    if not child:
        Lab(folder, {env!r}, "").guarded(arm, folder, endpoint_at({llm!r}, arm))
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Forks a process that sweeps, with everything imported, for each line that it reads; then waits for it."""


class Nursery:
    """Starts processes that sweep into one folder, as quickly as they can be started."""

    def __init__(self, folder: Path, env_url: str, llm_url: str) -> None:
        code = NURSERY.format(
            sweeps=str(TESTS / "sweeps"),
            doubles=str(TESTS / "doubles"),
            k=PASSES,
            folder=str(folder),
            env=env_url,
            llm=llm_url,
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self) -> int:
        """Process id of a new one."""
        return int(self._said())

    def kill(self, pid: int) -> int:
        """`kill -9`, and how it ended."""
        os.kill(pid, signal.SIGKILL)
        return int(self._said())

    def close(self) -> None:
        """End the nursery."""
        self._process.communicate()

    def _said(self) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Forty tasks, served."""
    home = tmp_path_factory.mktemp("lab")
    with served_environment(build_environment(home, TASKS), 40) as served:
        yield Lab(home, served.url, "")


def plays(request: Request) -> Said:
    """Two looks, and a guess that depends on the opening picture and on the seed."""
    if not request.tools:
        return guesses()(request)
    if request.calls_made < 2:
        return Said("", [("look", {"heading_deg": 90.0 * (request.calls_made + 1)})])
    dice = random.Random(request.pictures[0] + str(request.body.get("seed")).encode())
    return Said("", [("submit_guess", {"lat": dice.uniform(-60, 70), "lon": dice.uniform(-180, 180)})])


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_fifty_kills_lose_nothing_and_repeat_nothing(lab: Lab, tmp_path: Path) -> None:
    dice, arm, killed = random.Random("evaluation 2026"), double_arm(k=PASSES), tmp_path / "killed"
    episodes, moments = killed / "episodes.jsonl", list[int]()
    with LlmDouble(plays) as llm:
        calm = lab.guarded(arm, tmp_path / "calm", endpoint_at(llm.url, arm))
        write_outcomes(tmp_path / "calm", calm.records)
        nursery = Nursery(killed, lab.env_url, llm.url)
        for number in range(KILLS):
            # The work is shared out, so that the last kill still finds some: a kill may come before the
            # first new episode, or up to a few after it, and then at any moment of the next one.
            room = (EPISODES - lines_of(episodes)) // (KILLS - number)
            wanted = lines_of(episodes) + dice.randint(0, max(0, room - 2))
            child = nursery.start()
            if number % 5 == 4:
                time.sleep(dice.uniform(0.0, 0.3))  # within start-up, mostly
            else:
                while alive(child) and lines_of(episodes) <= wanted:
                    time.sleep(0.002)
                time.sleep(dice.uniform(0.0, 0.05))
            assert nursery.kill(child) == -signal.SIGKILL, "the kill must fall inside the run"
            moments.append(lines_of(episodes))
        nursery.close()
        assert moments[-1] < EPISODES
        said: list[str] = []
        swept = lab.guarded(arm, killed, endpoint_at(llm.url, arm), said=said)
    assert any("took over the lock" in line for line in said)
    assert swept.complete
    assert len(read_episodes(episodes)) == lines_of(episodes) == EPISODES
    write_outcomes(killed, swept.records)
    for name in ("episodes.jsonl", OUTCOMES):
        assert (killed / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()
    assert read_outcomes(killed).table.equals(read_outcomes(tmp_path / "calm").table)
    print(f"\n{KILLS} kills after {moments[0]} to {moments[-1]} episodes, {len(set(moments))} moments")


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_provider_that_fails_a_fifth_of_all_calls_costs_no_arm_a_point(
    lab: Lab, tmp_path: Path, dialect: str
) -> None:
    arm = double_arm(k=PASSES)
    with LlmDouble(plays, seed=7) as llm:
        rough = endpoint_at(f"{llm.url}/mix-20", arm, dialect, timeout_s=20.0, attempts=3)  # type: ignore[arg-type]
        swept = lab.guarded(arm, tmp_path / "rough", rough)
        met = llm.faults
        calm = lab.guarded(arm, tmp_path / "calm", endpoint_at(llm.url, arm, dialect))  # type: ignore[arg-type]
        told = read_calls(tmp_path / "rough")
        by_key = {record.key: record.line() for record in calm.records}
        assert len(swept.records) + len(swept.unscored) == EPISODES
        assert all(record.line() == by_key[record.key] for record in swept.records), "a fault left a trace"
        # Several faults share a column.
        wanted = Counter(CAUSE[name] if name else ANSWERED for name in met.elements())
        assert Counter(told.causes) == wanted
        assert told.calls == sum(met.values())
        assert set(told.faults) == {CAUSE[name] for name in FAULTS}
        again = lab.guarded(arm, tmp_path / "rough", endpoint_at(llm.url, arm, dialect))  # type: ignore[arg-type]
    assert again.complete
    files = [tmp_path / name / "episodes.jsonl" for name in ("rough", "calm")]
    assert files[0].read_bytes() == files[1].read_bytes()
    print(f"\n{dialect}: {told.calls} calls, {told.faults}, {len(swept.unscored)} unscored and played again")
