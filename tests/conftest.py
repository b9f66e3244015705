"""What every test stands on: a home of its own, the sandbox profile, and no way off this machine."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

GUARD = Path(__file__).parent / "guard"
REPOSITORY = Path(__file__).resolve().parents[1]

sys.path.insert(0, str(GUARD))
import sitecustomize  # noqa: E402, F401  (installs the guard in this process)

# Children get the guard too: Python imports `sitecustomize` from the path at start.
os.environ["PYTHONPATH"] = os.pathsep.join(
    part for part in (str(GUARD), str(REPOSITORY), os.environ.get("PYTHONPATH", "")) if part
)
os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"
os.environ["DO_NOT_TRACK"] = "1"
for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
    os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def _profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has the sandbox profile and an empty home, whatever the shell that started it had."""
    for name in [key for key in os.environ if key.startswith(("GEO_", "DAGSTER_", "MAPILLARY_"))]:
        if name not in ("GEO_SHARED", "DAGSTER_DISABLE_TELEMETRY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GEO_PROFILE", "sandbox")
    monkeypatch.setenv("GEO_HOME", str(tmp_path / "home"))
    yield


def shared_folder() -> Path | None:
    """The optional folder of recorded data beside the checkout, or None."""
    folder = Path(os.environ.get("GEO_SHARED") or REPOSITORY.parent / "shared")
    return folder if (folder / "data" / "mapillary").is_dir() else None


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded data; the test is skipped, with this reason, where there is none."""
    folder = shared_folder()
    if folder is None:
        pytest.skip("needs the recorded data: a folder `shared` beside the checkout, or GEO_SHARED")
    return folder
