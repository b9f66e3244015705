"""Makes the labs importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "sweeps"))
sys.path.insert(0, str(Path(__file__).parent))
