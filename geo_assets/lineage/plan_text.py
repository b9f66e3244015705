"""A plan in words: for a terminal of 80 columns, and as Markdown for Dagster's page."""

from collections.abc import Sequence
from textwrap import wrap

from geo_assets.lineage.costs import Cost, total
from geo_assets.lineage.explain import Change
from geo_assets.lineage.plan import Plan, Reason

WIDTH = 80
KINDS = {
    "code": "code",
    "data": "data",
    "dependency": "parents",
    "missing": "missing",
    "check": "check",
}


def plan_text(plan: Plan, width: int = WIDTH) -> str:
    """What is stale, why, what may follow, and what it costs."""
    if not plan.stale:
        return "Everything is fresh."
    lines = [f"{_counted(len(plan.stale), 'asset')} stale now, in the order of building:", ""]
    for one in plan.stale:
        cost = cost_words(plan.costs[one.asset])
        lines.append(f"  {one.asset}{cost.rjust(width - 2 - len(one.asset))}")
        for reason in one.reasons:
            first, later = f"    {KINDS[reason.kind]:<8}", " " * 12
            lines += wrap(reason.what, width, initial_indent=first, subsequent_indent=later)
    if plan.may_follow:
        lines += ["", "May follow, where what is above comes out different:", ""]
        lines += wrap(", ".join(plan.may_follow), width, initial_indent="  ", subsequent_indent="  ")
    now = total(plan.costs[name] for name in plan.names)
    lines += ["", f"Rebuilding what is stale takes {cost_words(now)}."]
    if plan.may_follow:
        lines.append(f"With all that may follow it takes {cost_words(plan.cost)} at most.")
    if plan.cost.basis == "estimate":
        lines.append("Figures with ~ are estimates; the others are medians of the last runs.")
    first_name = plan.stale[0].asset
    lines += ["", "Next: geo refresh", f"What changed, old and new: geo stale --explain {first_name}"]
    return "\n".join(lines)


def plan_markdown(plan: Plan) -> str:
    """The same as a table."""
    if not plan.stale:
        return "Everything is fresh."
    lines = ["| stale, in the order of building | why | rebuilding |", "|---|---|---|"]
    for one in plan.stale:
        why = "; ".join(f"**{KINDS[reason.kind]}**: {reason.what}" for reason in one.reasons)
        lines.append(f"| `{one.asset}` | {why.replace('|', '/')} | {cost_words(plan.costs[one.asset])} |")
    if plan.may_follow:
        names = ", ".join(f"`{name}`" for name in plan.may_follow)
        lines += ["", f"**May follow**, where what is above comes out different: {names}"]
    lines += ["", f"**Cost** of all of it at most: {cost_words(plan.cost)}"]
    return "\n".join(lines)


def explanation(name: str, reasons: Sequence[Reason], changes: Sequence[Change], width: int = WIDTH) -> str:
    """Why one asset is stale, and what changed, old and new."""
    if not reasons:
        return f"{name} is fresh."
    lines = [f"{name} is stale:"]
    for reason in reasons:
        first = f"  {KINDS[reason.kind]:<8}"
        lines += wrap(reason.what, width, initial_indent=first, subsequent_indent=" " * 10)
    if changes:
        lines += ["", "What differs from what it was made from:"]
        for change in changes:
            kind = {"data": "file", "parent": "content of"}.get(change.kind, change.kind)
            lines += [f"  {kind} {change.name}", f"    {change.old} → {change.new}"]
    return "\n".join(lines)


def cost_words(cost: Cost) -> str:
    """A cost in words, e.g. `~ 2 min 5 s, 0.4 A100-hours, $1.00`."""
    parts = [duration(cost.seconds)]
    if cost.gpu_hours:
        parts.append(f"{cost.gpu_hours:.2f} A100-hours")
    if cost.usd:
        parts.append(f"${cost.usd:.2f}")
    return ("~ " if cost.basis == "estimate" else "") + ", ".join(parts)


def duration(seconds: float) -> str:
    """Seconds as a reader says them."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _counted(count: int, what: str) -> str:
    return f"{count} {what} is" if count == 1 else f"{count} {what}s are"
