"""The lab of the sweep tests, for tasks and pictures."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "sweeps"))
sys.path.insert(0, str(Path(__file__).parents[1] / "doubles"))
