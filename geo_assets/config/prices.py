"""The price table: what hardware is called where it is rented, and what a job on it costs."""

import datetime
import math
from functools import cache
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from env_service.errors import GeoError

PRICES_FILE = Path(__file__).with_name("prices.yaml")
CPU = "cpu"
"""The one hardware that has no GPU."""
MINUTE_S = 60.0
MINUTES_PER_HOUR = 60.0


class PricesFileError(GeoError):
    """The price table cannot be used; the message names the file and the value."""


class UnknownHardware(GeoError):
    """A run or a job names hardware that the price table does not have."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Flavor(_Frozen):
    """Hardware for rent: US dollars per hour for all of it, and its number of GPUs."""

    usd_per_hour: Annotated[float, Field(ge=0)]
    gpus: Annotated[int, Field(ge=0)]


class Prices(_Frozen):
    """The table.

    Attributes:
        as_of: the day on which the prices were read.
        source: where.
        flavors: hardware by the name of whoever rents it out.
        hardware: names in `runs.yaml`, and the flavor of each.
    """

    as_of: datetime.date
    source: str
    flavors: dict[str, Flavor]
    hardware: dict[str, str]

    @model_validator(mode="after")
    def _known(self) -> Self:
        for name, flavor in self.hardware.items():
            if flavor not in self.flavors:
                raise ValueError(f"hardware {name} is {flavor}, which is no flavor of the table")
            if name != CPU and self.flavors[flavor].gpus < 1:
                raise ValueError(f"hardware {name} is {flavor}, which has no gpus: state 1 or more of them")
        return self

    def flavor_of(self, hardware: str) -> str:
        """The flavor of a run's hardware.

        Raises:
            UnknownHardware: the table has no such hardware.
        """
        if hardware not in self.hardware:
            known = ", ".join(self.hardware)
            raise UnknownHardware(f"{hardware} is no hardware of {PRICES_FILE.name}", f"It has: {known}")
        return self.hardware[hardware]

    def usd(self, flavor: str, seconds: float) -> float:
        """Dollars for a job that ran so long; a minute that has begun is counted whole.

        Raises:
            UnknownHardware: the table has no such flavor.
        """
        minutes = math.ceil(max(0.0, seconds) / MINUTE_S)
        return round(self._flavor(flavor).usd_per_hour / MINUTES_PER_HOUR * minutes, 4)

    def gpu_seconds(self, flavor: str, seconds: float) -> float:
        """Seconds times GPUs.

        Raises:
            UnknownHardware: the table has no such flavor.
        """
        return round(self._flavor(flavor).gpus * max(0.0, seconds), 3)

    def _flavor(self, name: str) -> Flavor:
        if name not in self.flavors:
            raise UnknownHardware(
                f"{PRICES_FILE.name} has no price for {name}", f"Add it under flavors in {PRICES_FILE}"
            )
        return self.flavors[name]


@cache
def load_prices(path: Path = PRICES_FILE) -> Prices:
    """Read the table.

    Raises:
        PricesFileError: it is broken, lacks a value or has one out of range.
    """
    try:
        return Prices.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        what = fault["msg"].removeprefix("Value error, ")
        raise PricesFileError(f"{path}: {where or 'the table'}: {what}", _fix(path)) from None
    except (OSError, yaml.YAMLError) as error:
        raise PricesFileError(f"{path} cannot be read: {' '.join(str(error).split())}", _fix(path)) from None


def _fix(path: Path) -> str:
    return f"Mend it, or take the committed one with: git checkout -- {path}; then run: geo stale"
