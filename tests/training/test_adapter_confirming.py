"""What an adapter's sweep played while nobody could say what was served: set aside, of both arms alike."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

LAB = Path(__file__).parent
sys.path[:0] = [str(LAB), str(LAB.parent / "sweeps")]

from sweeps_lab import build_environment, lab_run  # noqa: E402
from vlm_lab import ADAPTER, BASE, opening_of, publish_adapter, publish_base  # noqa: E402

from geo_assets.sweeps.adapter_arms import adapter_sweeps  # noqa: E402
from geo_assets.sweeps.adapter_sweep import sweep_pair  # noqa: E402
from geo_assets.sweeps.confirming import NotConfirmed  # noqa: E402
from geo_assets.sweeps.served_models import Card, ServedModels, WrongBaseServed  # noqa: E402
from geo_assets.sweeps.serving import served_environment  # noqa: E402
from resources.replies import ProviderError  # noqa: E402

NAME = f"sweep_{ADAPTER}"
EPISODES = 4
"""One task, four passes."""


class Killed(BaseException):
    """What no handler of the sweep's takes for a fault."""


def silent(cards: dict[str, Card]) -> dict[str, Card]:
    raise ProviderError("connection", "nobody answers")


def swapped(cards: dict[str, Card]) -> dict[str, Card]:
    return cards | {ADAPTER: Card(ADAPTER, "/another/adapter", BASE)}


def killed(cards: dict[str, Card]) -> dict[str, Card]:
    raise Killed


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that has been swept once."""
    home = tmp_path_factory.mktemp("world")
    config = build_environment(home, 1)
    with served_environment(config, 2) as served:
        opening, tools = opening_of(served.url)
    publish_base(home, opening, tools)
    publish_adapter(home)
    sweep_pair(lab_run(home, NAME), adapter_sweeps("sandbox")[0])
    return home


def lines(folder: Path) -> list[bytes]:
    return (folder / "episodes.jsonl").read_bytes().splitlines(keepends=True)


def test_what_was_played_counts_only_once_the_endpoint_was_seen_again(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "world"
    shutil.copytree(swept, home)
    top = home / "sweeps" / ADAPTER
    folders, whole = (top / BASE, top / ADAPTER), lines(top / ADAPTER)
    looks, said = 0, list[str]()
    asks = ServedModels.cards

    def sweep(second: Callable[[dict[str, Card]], dict[str, Card]] | None) -> None:
        nonlocal looks
        looks = 0
        said.clear()

        def watched(self: ServedModels) -> dict[str, Card]:
            nonlocal looks
            looks += 1
            return second(asks(self)) if second is not None and looks == 2 else asks(self)

        with monkeypatch.context() as patch:
            patch.setattr(ServedModels, "cards", watched)
            sweep_pair(lab_run(home, NAME, said), adapter_sweeps("sandbox")[0])

    # An episode of each arm is left to play, as after a run that left one unscored.
    for number, (second, error) in enumerate(((silent, NotConfirmed), (swapped, WrongBaseServed)), start=1):
        for folder in folders:
            (folder / "episodes.jsonl").write_bytes(b"".join(lines(folder)[: EPISODES - 1]))
        with pytest.raises(error, match="after the sweep"):
            sweep(second)
        for folder in folders:
            assert len(lines(folder)) == EPISODES - 1, "what stood before stands"
            assert len(list(folder.glob("quarantined/*"))) == number
        assert sum("the 1 episodes played now were moved to" in line for line in said) == 2
    with pytest.raises(Killed):
        sweep(killed)
    assert [len(lines(folder)) for folder in folders] == [EPISODES, EPISODES]
    sweep(None)
    assert looks == 2, "nothing was left to play, and the endpoint was looked at all the same"
    assert f"{ADAPTER}: {EPISODES} of {EPISODES} episodes are there" in said
    assert not any((folder / "unconfirmed.json").exists() for folder in folders)
    assert lines(top / ADAPTER) == whole
    sweep(None)
    assert looks == 0
    assert said == [f"{ADAPTER}: all {2 * EPISODES} episodes are there; nothing is asked again"]
