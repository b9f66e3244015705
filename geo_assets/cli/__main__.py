"""`python -m geo_assets.cli` is `geo`."""

from geo_assets.cli import main

main()
