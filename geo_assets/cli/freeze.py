"""`geo freeze NAME`: the eval index, committed under a name, with a readable difference to the one before."""

import typer


def freeze(
    name: str = typer.Argument(..., help="Name of the benchmark, such as sandbox-v1."),
) -> None:
    """Write the eval index (metadata only) to geo_assets/benchmarks/NAME.jsonl and declare it as frozen."""
    from env_service.tasks import read_tasks
    from geo_assets.data._frozen import benchmarks
    from geo_assets.data._frozen import freeze as write_frozen
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.folders import require

    stage = load_stage()
    split = require(stage.settings.home, "eval_split", "geo freeze")
    tasks = read_tasks(split.path / "tasks.jsonl") if split.facts.get("tasks") else ()
    changed = write_frozen(stage, name, tasks)
    for line in changed.lines():
        print(line)
    counts = ", ".join(f"{count} {what}" for what, count in changed.counts.items())
    print(f"{len(tasks)} tasks frozen as {name} ({counts}): {benchmarks() / name}.jsonl")
