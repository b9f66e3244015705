"""The two places where jobs run, asked the same questions, and what each of them survives."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from compute_lab import IMAGE
from fake_hub import FakeHub
from pydantic import SecretStr

from env_service.errors import GeoError
from resources.compute import Compute, ComputeError, JobRequest, JobVanished
from resources.compute.births import alive, birth
from resources.compute.hub import HubJobs
from resources.compute.local import LocalCompute

SECRET = "planted-secret-4711"
LABELS = {"geo-project": "geo-assets", "geo-asset": "a"}


@pytest.fixture
def at_hub(hub: FakeHub) -> HubJobs:
    """A Hub that is asked often."""
    quick: dict[str, float] = {"patience_s": 5, "pause_s": 0.05, "vanish_s": 0.2, "poll_s": 0.05}
    return HubJobs(SecretStr(hub.token), endpoint=hub.url, **quick)  # type: ignore[arg-type]


@pytest.fixture(params=["local", "hub"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Compute]:
    """Each of the two."""
    if request.param == "hub":
        yield request.getfixturevalue("at_hub")
        return
    compute = LocalCompute(tmp_path / "jobs")
    yield compute
    for job in compute.find({}):
        compute.cancel(job.id)


def request(code: str, **changes: Any) -> JobRequest:
    """A job that runs some Python."""
    own: dict[str, Any] = {"labels": LABELS, "timeout_s": 60, "flavor": "local", "image": IMAGE, **changes}
    return JobRequest("job", ("python", "-u", "-c", code), **own)


def until(condition: Callable[[], Any], limit_s: float = 60.0) -> Any:
    """Wait for a condition and give what it gave; fails after the limit."""
    end = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)
    return value


def test_a_job_from_its_launch_to_its_end(place: Compute) -> None:
    job = place.submit(request("print('one'); print('two')", env={"A": "1"}))
    assert list(place.logs(job.id, follow=True)) == ["one", "two"]
    assert until(lambda: not place.status(job.id).live)
    status = place.status(job.id)
    assert status.state == "succeeded" and status.running_s is not None
    assert list(place.logs(job.id)) == ["one", "two"]
    (found,) = place.find({"geo-asset": "a"})
    assert (found.id, found.labels["geo-project"], found.live) == (job.id, "geo-assets", False)
    assert place.find({"geo-asset": "b"}) == [] and not place.find({"geo-asset": "a", "geo-project": "x"})


def test_a_failure_a_limit_and_a_cancelled_job_are_told_apart(place: Compute) -> None:
    failed = place.submit(request("raise SystemExit(7)"))
    late = place.submit(request("import time; time.sleep(60)", timeout_s=1))
    stopped = place.submit(request("import time; print('up'); time.sleep(60)"))
    assert next(iter(place.logs(stopped.id, follow=True))) == "up"
    place.cancel(stopped.id)
    until(lambda: not any(place.status(job.id).live for job in (failed, late, stopped)))
    states = {name: place.status(job.id) for name, job in (("f", failed), ("l", late), ("s", stopped))}
    assert [states[name].state for name in "fls"] == ["failed", "failed", "cancelled"]
    assert "exit code" in states["f"].said and "7" in states["f"].said
    assert "time" in states["l"].said
    place.cancel(stopped.id)  # twice is as well as once


def test_nobody_knows_a_job_that_was_never_there(place: Compute) -> None:
    assert place.status("local-none").state == "vanished"
    with pytest.raises(JobVanished):
        list(place.logs("local-none"))


def test_ports_have_addresses(place: Compute) -> None:
    code = "import socket, sys; socket.socket().bind(('127.0.0.1', int(sys.argv[1])))"
    wanted = request(code)
    wanted = JobRequest(**{**wanted.__dict__, "command": (*wanted.command, "8000"), "ports": (8000,)})
    job = place.submit(wanted)
    (address,) = place.status(job.id).addresses
    assert address.startswith("http://127.0.0.1:")
    assert until(lambda: not place.status(job.id).live) and place.status(job.id).state == "succeeded"


def test_a_local_job_outlives_its_starter_and_keeps_no_secret(tmp_path: Path) -> None:
    root = tmp_path / "jobs"
    code = f"""
import sys
from pathlib import Path
from pydantic import SecretStr
from resources.compute import JobRequest
from resources.compute.local import LocalCompute
body = "import os, time; print(len(os.environ['S'])); time.sleep(1); print('still here'); "
body += "print('my', os.environ['S'], 'and', os.environ['SOME_API_KEY'], os.environ['MONKEY'])"
secrets = {{"S": SecretStr({SECRET!r})}}
request = JobRequest("j", ("python", "-u", "-c", body), {LABELS!r}, 60, secrets=secrets)
print(LocalCompute(Path({str(root)!r})).submit(request).id, flush=True)
sys.stdin.read()
"""
    around = {**os.environ, "SOME_API_KEY": f"inherited-{SECRET}", "MONKEY": "no secret"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=around
    ) as starter:
        assert starter.stdout is not None
        job_id = starter.stdout.readline().strip()
        starter.kill()
    place = LocalCompute(root)
    assert [job.id for job in place.find(LABELS)] == [job_id]
    assert list(place.logs(job_id, follow=True)) == [
        str(len(SECRET)),
        "still here",
        "my *** and *** no secret",
    ]
    until(lambda: place.status(job_id).state == "succeeded")
    held = [path for path in root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert not held and len(list(root.rglob("*"))) > 3


def test_a_damaged_request_does_not_end_its_job(tmp_path: Path) -> None:
    place = LocalCompute(tmp_path / "jobs")
    job = place.submit(request("import time; print('up'); time.sleep(60)"))
    assert next(iter(place.logs(job.id, follow=True))) == "up"
    (tmp_path / "jobs" / job.id / "request.json").write_text('{"name": "jo')
    assert place.status(job.id).state == "running" and place.find(LABELS) == []
    place.cancel(job.id)
    assert place.status(job.id).state == "cancelled"


def test_a_job_whose_keeper_is_killed_has_vanished_and_is_gone(tmp_path: Path) -> None:
    place = LocalCompute(tmp_path / "jobs")
    code = "import os, time; from resources.compute.inside import _leave_with_keeper as leave; "
    code += "leave(); print(os.getpid()); time.sleep(60)"
    job = place.submit(request(code))
    pid = int(next(iter(place.logs(job.id, follow=True))))
    keeper = psutil.Process(pid).parent()
    assert keeper is not None
    os.kill(keeper.pid, signal.SIGKILL)
    until(lambda: place.status(job.id).state == "vanished")
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_a_storm_is_waited_out_and_an_endless_one_is_told(at_hub: HubJobs, hub: FakeHub) -> None:
    job = at_hub.submit(request("print('x')"))
    hub.faults.storm(count=3)
    assert at_hub.status(job.id).state in ("queued", "running", "succeeded")
    assert [status for _, _, status in hub.asked].count(503) == 3
    hub.faults.storm(status=500)
    impatient = HubJobs(SecretStr(hub.token), "tester", endpoint=hub.url, patience_s=0.3, pause_s=0.05)
    with pytest.raises(ComputeError, match=r"answered 500 when asked to list jobs.*go on with it"):
        impatient.find({})
    assert hub.token not in str(hub.asked)


def test_a_hub_that_is_gone_or_refuses_is_told_without_the_token(hub: FakeHub) -> None:
    quick: dict[str, float] = {"patience_s": 0.3, "pause_s": 0.05}
    closed = HubJobs(SecretStr(hub.token), "tester", endpoint="http://127.0.0.1:9", **quick)  # type: ignore[arg-type]
    with pytest.raises(ComputeError, match="could not be reached") as gone:
        closed.find({})
    other = HubJobs(SecretStr(SECRET), "tester", endpoint=hub.url, **quick)  # type: ignore[arg-type]
    with pytest.raises(ComputeError, match=r"refuses to list jobs \(401\)") as refused:
        other.find({})
    assert SECRET not in f"{refused.value!r}{refused.value.__cause__}" and hub.token not in str(gone.value)


def test_more_jobs_than_a_page_and_a_label_the_hub_would_refuse(at_hub: HubJobs, hub: FakeHub) -> None:
    spec = {"command": ["true"], "arguments": [], "environment": {}, "flavor": "cpu-basic", "labels": LABELS}
    for number in range(7):
        hub.start(spec).created = float(number + 1)
    assert [job.created_at for job in at_hub.find(LABELS)] == [7, 6, 5, 4, 3, 2, 1]
    with pytest.raises(GeoError, match="labels of job are not what the Hub takes"):
        at_hub.submit(request("pass", labels={"geo-asset": "a/b"}))


def test_a_machine_that_slept_counts_a_job_as_old_as_its_keeper_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = LocalCompute(tmp_path / "jobs")
    job = place.submit(request("import time; print('up'); time.sleep(60)"))
    assert next(iter(place.logs(job.id, follow=True))) == "up"
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 7200)  # as after two hours asleep
    status = place.status(job.id)
    assert status.state == "running" and status.running_s is not None and 0 <= status.running_s < 60
    monkeypatch.undo()
    place.cancel(job.id)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="births are exact where /proc is")
def test_a_clock_that_is_set_loses_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = LocalCompute(tmp_path / "jobs")
    job = place.submit(request("import time; print('up'); time.sleep(60)"))
    assert next(iter(place.logs(job.id, follow=True))) == "up"
    real = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: real(process) + 5)
    assert place.status(job.id).state == "running"
    place.cancel(job.id)
    assert place.status(job.id).state == "cancelled"


def test_a_job_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    place = LocalCompute(tmp_path / "jobs")
    job = place.submit(request("import time; print('up'); time.sleep(60)"))
    assert next(iter(place.logs(job.id, follow=True))) == "up"
    path = tmp_path / "jobs" / job.id / "job.json"
    pid = json.loads(path.read_text())["pid"]
    born = psutil.Process(pid).create_time()
    path.write_text(json.dumps({"pid": pid, "born": born, "started_at": born}))
    assert place.status(job.id).state == "running"
    path.write_text(json.dumps({"pid": pid, "born": born - 60, "started_at": born}))
    assert place.status(job.id).state == "vanished", "another process has its id"
    path.write_text(json.dumps({"pid": pid, "born": born, "started_at": born}))
    place.cancel(job.id)
    assert place.status(job.id).state == "cancelled"


def test_a_process_is_known_by_its_birth() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        born = birth(process.pid)
        assert born is not None and alive(process.pid, born) and birth(process.pid) == born
        other = birth(os.getpid())
        assert other is not None and not alive(process.pid, other)
        process.kill()
        until(lambda: not alive(process.pid, born), 10)  # dead and not yet collected
    assert birth(process.pid) is None


def test_a_hub_that_is_asked_without_patience_is_asked_once(hub: FakeHub) -> None:
    place = HubJobs(SecretStr(hub.token), "tester", endpoint=hub.url, patience_s=0.0)
    hub.faults.storm(status=503, count=9)
    with pytest.raises(ComputeError, match="503"):
        place.find(LABELS)
    assert len(hub.asked) == 1
