"""`geo sweep`: play one arm's missing episodes and nothing else."""

import typer


def sweep(
    arm: str = typer.Argument(help="The arm's slug, as in geo_assets/config/arms.yaml."),
    resume: bool = typer.Option(True, help="Continue what is there; a finished sweep is left as it is."),
) -> None:
    """Play one arm over the eval environment; episodes that are there are never played again."""
    from env_service.errors import GeoError
    from geo_assets.cli.build import build
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.folders import AssetFolder
    from geo_assets.sweeps.factory import sweep_assets

    stage = load_stage()
    known = {asset.names[0] for asset in sweep_assets(stage)}
    name = f"sweep_{arm}"
    if name not in known:
        slugs = ", ".join(sorted(item.removeprefix("sweep_") for item in known))
        raise GeoError(f"There is no arm {arm!r} in profile {stage.settings.profile}", f"Known: {slugs}")
    if not resume and AssetFolder(stage.settings.home, f"sweeps/{arm}").built() is not None:
        raise GeoError(
            f"Arm {arm} is already swept in {stage.settings.home}",
            "Its episodes are never thrown away; move the folder aside to sweep anew",
        )
    build([name], only=True)
