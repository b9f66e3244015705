"""The service with tools that a test needs: one that stalls, one that fails, one nobody knew."""

import sys
import time

from env_service.environment import GeoGuessrEnvironment
from env_service.observing import Shown
from env_service.server.__main__ import main
from env_service.toolbox import tool


class LabEnvironment(GeoGuessrEnvironment):
    """Eleven tools and three more; nothing else is changed."""

    @tool(op="nap")
    def nap(self, seconds: float) -> Shown:
        """Stall.

        Args:
            seconds: for how long.
        """
        print("napping", flush=True)
        time.sleep(seconds)
        return Shown("awake")

    @tool(op="stumble")
    def stumble(self) -> Shown:
        """Fail as a bug would."""
        raise RuntimeError("a bug at 48.8584, 2.2945")

    @tool(op="sun", cost=0.03)
    def sun_height(self, hour: int = 12) -> str:
        """Tell how high the sun stands.

        Args:
            hour: local hour of the day.
        """
        return f"at {hour} h it is up"


if __name__ == "__main__":
    sys.exit(main(environment=LabEnvironment))
