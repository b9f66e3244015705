"""`geo sweep`: play one sweep's missing episodes and nothing else."""

import typer


def sweep(
    arm: str = typer.Argument(
        help="An arm's slug, as in geo_assets/config/arms.yaml, or an adapter's: adapter_<run>."
    ),
    resume: bool = typer.Option(True, help="Continue what is there; a finished sweep is left as it is."),
) -> None:
    """Play one arm, or an adapter and its base, over the eval environment; no episode is played twice."""
    from env_service.errors import GeoError
    from geo_assets.cli.build import build
    from geo_assets.config.arms import UnknownArm, load_arms
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.folders import AssetFolder
    from geo_assets.sweeps.adapter_arms import adapter_sweeps

    stage = load_stage()
    known = [found.slug for found in load_arms(stage.settings.profile).arms]
    known += [found.slug for found in adapter_sweeps(stage.settings.profile)]
    if arm not in known:
        raise UnknownArm(
            f"There is no arm {arm!r} in profile {stage.settings.profile}",
            f"It is one of: {', '.join(known) or 'none'}",
        )
    if not resume and AssetFolder(stage.settings.home, f"sweeps/{arm}").built() is not None:
        raise GeoError(
            f"Arm {arm} is already swept in {stage.settings.home}",
            "Its episodes are never thrown away; move the folder aside to sweep anew",
        )
    build([f"sweep_{arm}"], only=True)
