"""What a sweep was played by, and what came out of it, as versions that sweeps and tables both read."""

import hashlib
from collections.abc import Iterable

from geo_assets.config.arms import ArmSpec
from geo_assets.config.settings import REPOSITORY
from geo_assets.lineage.fingerprint import code_version
from geo_assets.lineage.versions import content_version
from geo_assets.sweeps.records import EpisodeRecord

HARNESS = (
    "geo_assets.sweeps.harness:make_plan",
    "geo_assets.sweeps.harness:run_sweep",
    "resources.endpoints:ChatEndpoint",
)
"""The endpoint is handed to the harness by whoever starts it."""
APART = ("geo_assets.sweeps.protocols:PLAYS", "env_service.scoring:BOARD_V1")
"""Not followed: an arm's own protocol enters by name, and the reporting curve is of tables alone. Here
it only checks what an environment says that it paid."""
HOSTING = ("geo_assets.sweeps.self_hosted",)
"""How a job of ours serves a model: not followed where none does."""
PROMPTS = "geo_assets/sweeps/prompts"
SWATCH = "swatch"
POLICY_SERVER = "resources.sandbox.policy_server"


def harness_version() -> str:
    """Version of the code that plays, the same for every arm; reports and policies are no part of it."""
    return code_version(HARNESS, inputs=prompt_files(SWATCH), apart=APART)


def protocol_code(arm: ArmSpec) -> tuple[str, ...]:
    """What plays an episode under the arm's protocol; those of other arms are no part of its version."""
    return (f"geo_assets.sweeps.protocol_{arm.protocol}:play",)


def prompt_files(*names: str) -> tuple[str, ...]:
    """The files with the words of some prompts, as inputs of a code version."""
    folders = [REPOSITORY / PROMPTS / name for name in names]
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    return tuple(str(path.relative_to(REPOSITORY)) for path in files if "__pycache__" not in path.parts)


def sweep_inputs(arm: ArmSpec) -> tuple[str, ...]:
    """The files that an arm's sweep reads: the words of its protocol, and of the test of sight."""
    return prompt_files(arm.protocol, SWATCH)


def protocol_version(arm: ArmSpec) -> str:
    """Version of how and with what words the arm is asked."""
    return code_version(protocol_code(arm), inputs=prompt_files(arm.protocol), apart=APART)


def served_modules(arm: ArmSpec) -> tuple[str, ...]:
    """Modules that the sweep starts and no import reaches.

    The environment is not among them: it has a version of its own, which is the parent's.
    """
    return (POLICY_SERVER,) if arm.provider == "sandbox" else ()


def model_version(arm: ArmSpec) -> str:
    """Version of the model where its code is ours: of the sandbox policies; empty for any other."""
    return code_version(served_modules(arm)) if served_modules(arm) else ""


def episodes_version(records: Iterable[EpisodeRecord], unscored: Iterable[tuple[int, int]], k: int) -> str:
    """Data version of a sweep: the episodes of the wanted passes, byte for byte, and which are missing.

    Args:
        records: the episodes, in any order.
        unscored: (sample, task_index) of those that no provider would answer.
        k: passes wanted.
    """
    digest = hashlib.sha256()
    for record in sorted(records, key=lambda record: record.key):
        digest.update(record.line())
    return content_version(
        {"episodes": digest.hexdigest(), "unscored": [list(key) for key in sorted(unscored)], "k": k}
    )
