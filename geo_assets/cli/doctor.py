"""`geo doctor`: what this profile needs and whether it is there, all told at once."""

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import typer


def doctor(as_json: bool = typer.Option(False, "--json", help="Machine-readable.")) -> None:
    """Say what this profile needs and whether it is there."""
    from env_service.errors import GeoError
    from geo_assets.config.compute import load_compute, open_compute
    from geo_assets.config.settings import load_settings

    settings = load_settings()
    checks = [
        ("python", sys.version_info >= (3, 11), sys.version.split()[0], "Python 3.11 or newer"),
        (
            "DAGSTER_HOME",
            bool(os.environ.get("DAGSTER_HOME")),
            os.environ.get("DAGSTER_HOME", "unset: the history of runs would be lost"),
            "source env.sh",
        ),
        (
            "disk",
            (free := _free_gb(settings.home)) > 2,
            f"{free:.0f} GB free for {settings.home}",
            "free some space, or set GEO_HOME to a folder with more",
        ),
    ]
    if settings.profile == "sandbox":
        lacks = [name for name in ("torch", "trl", "peft") if importlib.util.find_spec(name) is None]
        said = f"missing: {', '.join(lacks)}" if lacks else "torch, trl and peft are installed"
        checks.append(("training packages", not lacks, said, "make setup"))
    if settings.profile == "live":
        card = Path("/dev/nvidiactl").exists()
        said = "there" if card else "none: training and self-hosted arms rent one on the Hub"
        rents, fix = True, ""
        try:
            open_compute(load_compute(settings), "a100-large", "training")
        except GeoError as error:
            rents, fix = False, str(error)
        checks.append(("CUDA device", card or rents, said, fix))
        token = bool(settings.mapillary_token.get_secret_value())
        said = "set" if token else "unset: coverage_tiles, task_pool and mirrored_panoramas need it"
        checks.append(("MAPILLARY_ACCESS_TOKEN", token, said, "export MAPILLARY_ACCESS_TOKEN=…"))
        for name, need in (("ANTHROPIC_API_KEY", "arms of anthropic"), ("OPENAI_API_KEY", "arms of openai"),
                           ("HF_TOKEN", "arms over the inference router, and the Hub"),
                           ("GEO_VLLM_URL", "sweeps of adapters, where no job is wanted,")):  # fmt: skip
            there = bool(os.environ.get(name))
            checks.append((name, there, "set" if there else f"unset: {need} need it", f"export {name}=…"))
    if settings.profile == "recorded":
        there = (settings.recorded_dir / "frames.parquet").exists()
        checks.append(
            (
                "recorded data",
                there,
                str(settings.recorded_dir),
                "set GEO_RECORDED to the folder that holds it",
            )
        )
    ok = all(passed for _, passed, _, _ in checks)
    if as_json:
        rows = [{"name": n, "ok": p, "found": f, "fix": "" if p else x} for n, p, f, x in checks]
        print(json.dumps({"profile": settings.profile, "ok": ok, "checks": rows}, indent=2))
    else:
        print(f"profile {settings.profile}, home {settings.home}")
        for name, passed, found, fix in checks:
            print(f"  {'ok ' if passed else 'NO '} {name}: {found}" + ("" if passed else f"  ->  {fix}"))
    raise typer.Exit(0 if ok else 1)


def _free_gb(path: object) -> float:
    folder = Path(str(path))
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free / 1e9
