"""Jobs that may outlive whoever asked for them: one protocol, on this machine and on Hugging Face Jobs.

`LocalCompute` and `HubJobs` answer the same five questions: `submit`, `status`, `logs`, `cancel`, `find`. A
job carries labels that say what it is for, so an orchestrator that died finds it again instead of paying
twice. `following` reads a job to its end; `inside` is what a job says and stores from within; `artifacts`
carries folders to it and back.
"""

from resources.compute.labels import ASSET, FINGERPRINT, HOME, LAUNCH, PROJECT, PROJECT_NAME, orphans
from resources.compute.protocol import (
    LOCAL,
    PYTHON,
    Compute,
    ComputeError,
    Job,
    JobFailed,
    JobRequest,
    JobStatus,
    JobVanished,
    State,
)

__all__ = [
    "ASSET",
    "FINGERPRINT",
    "HOME",
    "LAUNCH",
    "LOCAL",
    "PROJECT",
    "PROJECT_NAME",
    "PYTHON",
    "Compute",
    "ComputeError",
    "Job",
    "JobFailed",
    "JobRequest",
    "JobStatus",
    "JobVanished",
    "State",
    "orphans",
]
