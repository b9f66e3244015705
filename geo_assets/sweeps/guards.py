"""What is found out about an endpoint before and after a sweep, and what of a sweep is set aside for it.

Each guard came from a wrong number that looked right:

1. wrong base served   what the endpoint lists must be the model asked for, before and after (`check_card`)
2. dead endpoint       replies without a finish reason (`harness`, at the end of every run)
3. two reward scales   stored rewards belong to one known formula (`scales`)
4. no base arm         an adapter's sweep plays its own base arm (`adapter_sweep`)
5. unequal k           k passes over all tasks, or incomplete (`whole_passes`; tables compare nothing else)
6. concurrent sweeps   one writer (`lock`), each (task, sample) once (`store`, `whole_passes`)
7. blind endpoint      colour swatches, or exchanged pictures (`sight`)

`guarded` puts 1 and 7 around a sweep. Episodes that were played under doubt are set aside and count for
nothing; the episodes of earlier runs stay. A run that is killed cannot look a second time: the next run does
it, and what the killed one played stands only if both saw the same (`confirming`).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from env_service.canonical import atomic_write, canonical_json
from env_service.errors import GeoError
from geo_assets.config.arms import ArmSpec
from geo_assets.sweeps.confirming import NotConfirmed, clear, confirm, settle
from geo_assets.sweeps.harness import MAX_UNFINISHED_SHARE, Plan, Swept, request_sampling, run_sweep
from geo_assets.sweeps.kept import Kept, mending
from geo_assets.sweeps.records import EpisodeRecord
from geo_assets.sweeps.scales import one_scale
from geo_assets.sweeps.served_models import WrongBaseServed
from geo_assets.sweeps.sight import BlindEndpoint, Sight, read_swatches
from geo_assets.sweeps.store import LOOKED, SweepStore
from resources.endpoints import ChatEndpoint
from resources.replies import Card, ProviderError, same_model

__all__ = [
    "Found",
    "NotConfirmed",
    "UnevenPasses",
    "check_card",
    "figures",
    "guarded",
    "listed_as",
    "look",
    "read_found",
    "sees",
    "whole_passes",
    "write_found",
]

SWATCH_TRIES = 2
"""One misread swatch may be the sampling; a blind endpoint passes neither time."""


class UnevenPasses(GeoError):
    """Episodes that are not k passes over the tasks, each once."""


@dataclass(frozen=True)
class Found:
    """What was found out about an endpoint.

    Attributes:
        listed: its entry in the model list; None where it lists nothing.
        sight: whether it sees.
    """

    listed: Card | None
    sight: Sight

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return {"listed": listed_as(self.listed), "sight": self.sight.facts()}


def look(arm: ArmSpec, endpoint: ChatEndpoint, sweep: str = "") -> Card | None:
    """Ask an endpoint what it serves, and refuse what is not the arm's model; None where it has no list.

    Raises:
        WrongBaseServed: names the difference.
        ProviderError: it does not answer.
    """
    try:
        cards = endpoint.cards()
    except ProviderError as error:
        if error.fault == "refused":  # it has no such route, or keeps it to itself
            return None
        raise
    return check_card(cards, arm, endpoint.base_url, sweep or arm.slug)


def check_card(cards: Mapping[str, Card], arm: ArmSpec, address: str, sweep: str) -> Card | None:
    """The arm's own entry of a model list.

    Raises:
        WrongBaseServed: there is none, it is an adapter, or its weights come from somewhere else.
    """
    fix = f"Serve {arm.weights or arm.model} as {arm.model}, then run: geo sweep {sweep}"
    listed = cards.get(arm.model) or next(
        (c for name, c in cards.items() if same_model(arm.model, name)), None
    )
    if listed is None:
        known = ", ".join(sorted(cards)[:8]) + (", …" if len(cards) > 8 else "")
        raise WrongBaseServed(f"{address} does not serve {arm.model}; it serves {known or 'nothing'}", fix)
    if listed.parent is not None:
        raise WrongBaseServed(
            f"{address} serves {arm.model} as an adapter on {listed.parent}, and not as a model of its own",
            fix,
        )
    wanted = arm.weights or (arm.model.partition(":")[0] if "/" in arm.model else "")
    if wanted and listed.root and not _comes_from(listed.root, wanted):
        raise WrongBaseServed(f"{address} serves {listed.root} as {arm.model}, not {wanted}", fix)
    return listed


def sees(arm: ArmSpec, endpoint: ChatEndpoint, sweep: str = "") -> Sight:
    """Show an endpoint swatches.

    Raises:
        BlindEndpoint: it cannot name them.
        WrongBaseServed: another model says that it answered.
        ProviderError: it does not answer.
    """
    sampling = request_sampling(arm)
    fix = f"Look at what serves {arm.model}, then run: geo sweep {sweep or arm.slug}"
    for attempt in range(1, SWATCH_TRIES + 1):
        try:
            found, _ = read_swatches(
                lambda messages: endpoint.complete(messages, (), sampling),
                f"{endpoint.base_url} as {arm.model}",
                fix,
            )
            return found
        except BlindEndpoint:
            if attempt == SWATCH_TRIES:
                raise
        except ProviderError as error:
            if error.fault == "wrong_model":
                raise WrongBaseServed(error.problem, fix) from None
            raise
    raise AssertionError("unreachable")


def guarded(
    plan: Plan,
    env_url: str,
    endpoint: ChatEndpoint,
    store: SweepStore,
    say: Callable[[str], None] = print,
    kept: Sequence[Kept] = (),
) -> Swept:
    """`run_sweep`, with a look at the endpoint before and after it.

    Raises:
        WrongBaseServed: the endpoint serves, or served in the end, something else.
        BlindEndpoint: it does not see its pictures.
        ProviderError: it does not answer when it is looked at the first time.
        NotConfirmed: it does not the second time.
        GeoError: whatever `run_sweep` raises.
    """
    arm = plan.arm
    listed = mending(kept, lambda: look(arm, endpoint, plan.slug))
    sight = mending(kept, lambda: sees(arm, endpoint, plan.slug))
    say(f"{arm.slug}: {endpoint.base_url} serves {arm.model}, and sees")
    begun = [(store, settle(store, listed_as(listed), say))]
    swept = run_sweep(plan, env_url, endpoint, store, say, kept=kept)

    def look_again() -> None:
        again = mending(kept, lambda: look(arm, endpoint, plan.slug))
        if again != listed:
            raise WrongBaseServed(
                f"{endpoint.base_url} lists {_words(again)} after the sweep and {_words(listed)} before it",
                f"Serve one model for as long as the sweep lasts, and run: geo sweep {plan.slug}",
            )

    confirm(begun, look_again, plan.slug, say)
    write_found(store.folder, Found(listed, sight))
    clear(begun)
    return swept


def whole_passes(records: Iterable[EpisodeRecord], tasks: int, k: int, slug: str) -> float:
    """Episodes by tasks, which must not exceed the k that was asked for; each (task, sample) stands once.

    Raises:
        UnevenPasses: an episode stands twice, or outside the k passes over the tasks.
    """
    keys = [record.key for record in records]
    outside = [key for key in keys if not (key[0] < k and key[1] < tasks)]
    if len(set(keys)) != len(keys) or outside:
        what = f"task {outside[0][1]}, sample {outside[0][0]}" if outside else "an episode twice"
        raise UnevenPasses(
            f"{slug} holds {what}, which is not in {k} passes over {tasks} tasks",
            f"Run: geo sweep {slug} (it sets aside what does not belong there)",
        )
    return len(keys) / tasks if tasks else 0.0


def read_found(folder: Path) -> dict[str, Any]:
    """What was found out about the endpoint of a sweep that stands; empty where nothing was."""
    try:
        value = json.loads((folder / LOOKED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_found(folder: Path, found: Found) -> None:
    """Keep what was found out beside the episodes."""
    atomic_write(folder / LOOKED, canonical_json(found.facts()))


def figures(records: Sequence[EpisodeRecord], tasks: int, k: int, slug: str) -> dict[str, dict[str, Any]]:
    """The guards' figures over what stands, by check: each with its limit, for the asset's page.

    Raises:
        TwoRewardScales, UnevenPasses: what stands is refused.
    """
    unfinished = sum(record.result.unfinished_replies for record in records)
    replies = sum(record.result.replies for record in records)
    return {
        "endpoint_alive": {
            "replies": replies,
            "unfinished": unfinished,
            "share": unfinished / replies if replies else 0.0,
            "limit": MAX_UNFINISHED_SHARE,
        },
        "one_reward_scale": {"curve": one_scale(records, slug), "off": 0, "limit": 0},
        "passes_are_whole": {"episodes_by_tasks": whole_passes(records, tasks, k, slug), "limit": k},
    }


def _comes_from(root: str, wanted: str) -> bool:
    """Whether a served root is the repository or folder wanted; the Hub's cache names it in its path."""
    return root.lower() == wanted.lower() or f"models--{wanted.replace('/', '--')}" in PurePath(root).parts


def listed_as(card: Card | None) -> dict[str, Any] | None:
    """An entry of a model list as JSON."""
    return None if card is None else {"id": card.id, "root": card.root, "parent": card.parent}


def _words(card: Card | None) -> str:
    if card is None:
        return "nothing"
    return (
        card.id + (f" from {card.root}" if card.root else "") + (f" on {card.parent}" if card.parent else "")
    )
