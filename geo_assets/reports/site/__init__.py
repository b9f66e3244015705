"""The pages of `report_site`: pure builders, from figures that stand in files to HTML, SVG and pictures.

Nothing here computes a statistic. `collect` reads what the parents published, `telling` chooses episodes,
`frames` plays them again, the charts draw, `pages` puts everything into one folder that opens from disk.
"""
