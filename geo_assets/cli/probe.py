"""`geo probe`: look at an arm's endpoint before money is spent on it."""

import json
import sys
from typing import Any

import typer


def probe(
    arm: str = typer.Argument(help="An arm's slug, as in geo_assets/config/arms.yaml."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON (docs/schemas/probe.json)."),
) -> None:
    """Say what an arm's endpoint serves, whether it sees and calls tools, how fast, and what a turn costs."""
    from geo_assets.config.arms import load_arms
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.folders import require
    from geo_assets.sweeps.probing import probe_arm
    from geo_assets.sweeps.serving import served_environment, served_model

    stage = load_stage()
    spec = load_arms(stage.settings.profile).get(arm)
    config = require(stage.settings.home, "eval_environment", f"geo probe {arm}").path / "config.json"
    with served_environment(config, 1, arm) as served, served_model(spec, config) as model:
        found = probe_arm(
            spec, model.endpoint, served.url, lambda what: print(f"{arm}: {what}", file=sys.stderr)
        )
    print(json.dumps(found, indent=2) if as_json else "\n".join(_lines(found)))
    if not found["ok"]:
        raise typer.Exit(1)


def _lines(found: dict[str, Any]) -> list[str]:
    serves, sight, turn = found["serves"], found["sight"], found["turn"]
    lines = [f"{found['arm']}: {found['model']} at {found['address']}, protocol {found['protocol']}"]
    if serves:
        root = f" from {serves['root']}" if serves["root"] else ""
        lines.append(f"  lists    {serves['id']}{root}")
    if sight:
        lines.append(f"  sees     {sight['seen']} of {sight['asked']} colour swatches named")
    if turn:
        tool = f"calls {turn['tool']}" if turn["calls_tools"] else "calls no tool"
        lines.append(f"  plays    {tool}, finish reason {turn['finish_reason']}, {turn['latency_s']:.2f} s")
        usd = "price unknown" if turn["usd"] is None else f"${turn['usd']:.6f}"
        lines.append(
            f"  a turn   {turn['prompt_tokens']:,} tokens in, {turn['completion_tokens']:,} out, {usd}"
        )
    failed = {name: count for name, count in found["calls"].items() if count and name != "answered"}
    lines.append(
        f"  calls    {found['calls']['answered']} answered, {sum(failed.values())} failed {failed or ''}"
    )
    lines += [f"  problem  {problem}" for problem in found["problems"]]
    return [*lines, f"  {'fit to be swept' if found['ok'] else 'not fit to be swept'}"]
