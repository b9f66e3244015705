"""`geo sweep`: play one arm's missing episodes and nothing else."""

import typer


def sweep(
    arm: str = typer.Argument(help="The arm's slug, as in geo_assets/config/arms.yaml."),
    resume: bool = typer.Option(True, help="Continue what is there; a finished sweep is left as it is."),
) -> None:
    """Play one arm over the eval environment; episodes that are there are never played again."""
    from env_service.errors import GeoError
    from geo_assets.cli.build import build
    from geo_assets.config.arms import load_arms
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.folders import AssetFolder

    stage = load_stage()
    load_arms(stage.settings.profile).get(arm)
    if not resume and AssetFolder(stage.settings.home, f"sweeps/{arm}").built() is not None:
        raise GeoError(
            f"Arm {arm} is already swept in {stage.settings.home}",
            "Its episodes are never thrown away; move the folder aside to sweep anew",
        )
    build([f"sweep_{arm}"], only=True)
