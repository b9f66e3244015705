"""What automation may spend and start by itself, read from `budget.yaml`; every refusal names file and line.

`GEO_BUDGET` names another file, for a deployment whose code is read-only.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from geo_assets.config.arms_yaml import ArmsFileError, compose, line_of, locate, plain
from geo_assets.config.settings import Profile

BUDGET_FILE = Path(__file__).with_name("budget.yaml")
Usd = Annotated[float, Field(ge=0)]


class BudgetFileError(ArmsFileError):
    """`budget.yaml` says something that cannot be; `path` and `line` say where."""


class _Frozen(BaseModel):
    # Strict: `auto: "no"` must not become true, nor `per_day_usd: true` a dollar.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class Budget(_Frozen):
    """US dollars that automation may spend.

    Attributes:
        per_run_usd: what one run may be expected to cost.
        per_day_usd, per_month_usd: what all spending of the running day and month (UTC) may come to.
    """

    per_run_usd: Usd
    per_day_usd: Usd
    per_month_usd: Usd


class Retrain(_Frozen):
    """Whether adapters are trained again without an approval."""

    auto: bool = False


class Orphans(_Frozen):
    """How long a job that no run waits for goes on, in minutes."""

    grace_minutes: Annotated[float, Field(ge=0)] = 120.0


class _File(_Frozen):
    budgets: Mapping[Profile, Budget]
    retrain: Retrain = Retrain()
    orphans: Orphans = Orphans()


class Automation(_Frozen):
    """What the file says for one profile."""

    budget: Budget
    retrain: Retrain
    orphans: Orphans


def load_automation(profile: Profile, path: Path | None = None) -> Automation:
    """Read the whole file anew, then keep what one profile has.

    Args:
        profile: whose budget.
        path: the file; by default the one that `GEO_BUDGET` names, or `budget.yaml` beside this module.

    Raises:
        BudgetFileError: broken YAML, an unknown key, a value out of range, or a profile without a budget.
    """
    path = path or Path(os.environ.get("GEO_BUDGET") or BUDGET_FILE)
    try:
        root = compose(path)
    except ArmsFileError as error:
        raise BudgetFileError(path, error.line, error.problem.partition(": ")[2]) from None
    try:
        file = _File.model_validate(plain(root))
    except ValidationError as error:
        raise _fault(error, root, path) from None
    if profile not in file.budgets:
        named = locate(root, ("budgets",))
        known = ", ".join(get_args(Profile))
        raise BudgetFileError(
            path, line_of(named or root), f"profile {profile} has no budget (profiles are {known})"
        )
    return Automation(budget=file.budgets[profile], retrain=file.retrain, orphans=file.orphans)


def _fault(error: ValidationError, root: yaml.Node, path: Path) -> BudgetFileError:
    fault = error.errors(include_url=False)[0]
    where = [part for part in fault["loc"] if part != "[key]"]
    name = ".".join(str(part) for part in where) or "the file"
    at = next(
        node for reach in range(len(where), -1, -1) if (node := locate(root, where[:reach])) is not None
    )
    said = f"{fault['msg'][:1].lower()}{fault['msg'][1:]}"
    message = {"missing": f"{name} is missing", "extra_forbidden": f"unknown key {name!r}"}.get(
        fault["type"], f"{name} is {fault['input']!r}: {said}"
    )
    return BudgetFileError(path, line_of(at), message)
