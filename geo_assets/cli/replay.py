"""`geo replay`: play a recorded episode again, and check every picture against the hash that was kept."""

from pathlib import Path

import typer


def replay(
    episode: str = typer.Argument(help="ARM/TASK/SAMPLE, or SWEEP/ARM/TASK/SAMPLE of an adapter's sweep."),
    out: Path = typer.Option(None, help="Where the frames go; build/replay/… if left out."),
) -> None:
    """Render an episode frame by frame; exit 1 with the first difference from the record."""
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.folders import require
    from geo_assets.sweeps.finding import find_episode
    from geo_assets.sweeps.replay import replay as replayed
    from geo_assets.sweeps.serving import served_environment

    stage = load_stage()
    record = find_episode(episode, stage.settings.home)
    environment = require(stage.settings.home, "eval_environment", f"geo replay {episode}")
    folder = out or Path("build/replay") / f"{record.arm}-{record.task_index}-{record.sample}"
    with served_environment(environment.path / "config.json", 1, record.arm) as served:
        steps = replayed(record, served.url)
    folder.mkdir(parents=True, exist_ok=True)
    for number, step in enumerate(steps):
        turn = record.turns[number - 1] if number else None
        name = f"{number:02d}-{step.caption.replace(' ', '_')}"
        if step.picture:
            suffix = ".png" if step.kind == "map" else ".jpg"
            (folder / f"{name}{suffix}").write_bytes(step.picture)
        print(f"{number:2d}. {step.caption:16s} {turn.arguments if turn else ''}")
        if turn:
            print(f"    {turn.feedback}")
    pictures = sum(bool(step.picture) for step in steps)
    result = record.result
    end = f"{result.distance_km:,.1f} km away" if result.distance_km is not None else result.outcome
    print(
        f"{end}, cost {result.cost:g}; {pictures} pictures have the hashes of the record; frames in {folder}"
    )
