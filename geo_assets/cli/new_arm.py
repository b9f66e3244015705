"""`geo new-arm`: declare an arm in `arms.yaml` without touching what stands there."""

from pathlib import Path

import typer


def new_arm(
    slug: str = typer.Argument(help="Its name in assets, folders and tables: a to z, 0 to 9 and _."),
    model: str = typer.Option(help="The model id to ask for."),
    provider: str = typer.Option(
        "openai_compatible", help="openai, anthropic, hf_router, openai_compatible, self_hosted or sandbox."
    ),
    label: str = typer.Option("", help="Its name for people; the slug if left out."),
    base_url: str = typer.Option(
        "", help="Address that ends before /chat/completions, where the provider has none."
    ),
    protocol: str = typer.Option("tools", help="tools, or json for endpoints without tool calling."),
    profile: list[str] = typer.Option(["live"], help="Where the arm exists; may be given several times."),
    tool_parser: str = typer.Option(
        "", help="What reads its calls where a job serves it: a parser of vllm's; its family's if left out."
    ),
    board: str = typer.Option("", help="Also put it at the end of this board's ladder."),
    file: Path = typer.Option(None, hidden=True),
) -> None:
    """Declare an arm: an asset sweep_SLUG from now on."""
    from geo_assets.config.arms import ARMS_FILE
    from geo_assets.config.arms_adding import add_arm

    fields: dict[str, object] = {"slug": slug, "label": label or slug.replace("_", " "), "provider": provider}
    fields |= {"protocol": protocol, "model": model}
    if tool_parser:
        fields["tool_parser"] = tool_parser
    if base_url:
        fields["base_url"] = base_url
    arm = add_arm(fields | {"profiles": list(profile)}, board, file or ARMS_FILE)
    where = " and ".join(arm.profiles)
    print(f"{arm.slug} is declared in {file or ARMS_FILE} for {where}; it is the asset sweep_{arm.slug} now")
    print(f"Next: geo probe {arm.slug}, then geo sweep {arm.slug}")
