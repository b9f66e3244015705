"""Where base and adapter are served live: a job that both are carried to, or a server of the user's own."""

import sys
from pathlib import Path

import pytest

LAB = Path(__file__).parent
sys.path[:0] = [str(LAB), str(LAB.parent / "sweeps")]

from vlm_lab import ADAPTER, BASE  # noqa: E402

from env_service.errors import GeoError  # noqa: E402
from geo_assets.config.compute import ComputeSettings  # noqa: E402
from geo_assets.config.runs import load_runs  # noqa: E402
from geo_assets.lineage.folders import Published  # noqa: E402
from geo_assets.sweeps.adapter_arms import AdapterSweep, adapter_sweep_of  # noqa: E402
from geo_assets.sweeps.adapter_serving import (  # noqa: E402
    Pair,
    live_endpoint,
    pair_hosting,
    served_pair,
)
from geo_assets.sweeps.serve_job import serving_command  # noqa: E402
from resources.compute.artifacts import put_folder  # noqa: E402


def live_pair(tmp_path: Path) -> tuple[AdapterSweep, Pair]:
    sweep = adapter_sweep_of(load_runs("live").get("run3"), "live")
    base = Published(BASE, tmp_path / BASE, "abc", {"repo": "Qwen/Qwen3.5-4B", "revision": "abc"})
    return sweep, Pair(base, Published(ADAPTER, tmp_path / ADAPTER, "v", {}))


def test_where_no_card_can_be_rented_the_message_shows_how_to_serve(tmp_path: Path) -> None:
    sweep, pair = live_pair(tmp_path)
    nowhere = ComputeSettings("hub", str(tmp_path / "jobs"), tmp_path)
    with pytest.raises(GeoError) as caught, served_pair(sweep, pair, nowhere, print, {}):
        pass
    said = str(caught.value)
    assert "HF_TOKEN and GEO_JOB_IMAGE must be set" in said and "then set GEO_VLLM_URL=http" in said
    assert "vllm serve Qwen/Qwen3.5-4B --revision abc --served-model-name base_model_4b" in said
    assert f"--enable-lora --max-lora-rank {sweep.run.lora.r}" in said
    assert f"--lora-modules {ADAPTER}={tmp_path / ADAPTER / 'adapter'}" in said


def test_a_job_serves_the_repository_with_the_adapter_carried_to_it(tmp_path: Path) -> None:
    sweep, pair = live_pair(tmp_path)
    hosting = pair_hosting(sweep, pair)
    assert hosting.folders == {"adapter": tmp_path / ADAPTER / "adapter"}
    assert (hosting.model, hosting.root) == (BASE, "Qwen/Qwen3.5-4B")
    assert hosting.command[-2:] == ("--lora-modules", f"{ADAPTER}={{adapter}}")
    assert hosting.versions == {"base": "abc", "adapter": "v"}
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "a").write_text("x")
    put_folder(tmp_path / "weights", f"file://{tmp_path}/store/adapter")
    payload = {
        "command": ["python", *hosting.command[1:], "--port={port}"],
        "folders": {"adapter": f"file://{tmp_path}/store/adapter"},
    }
    command = serving_command(payload, tmp_path / "scratch", 8123)
    assert command[0] == sys.executable and command[-1] == "--port=8123"
    assert command[-2] == f"{ADAPTER}={tmp_path}/scratch/adapter"
    assert (tmp_path / "scratch" / "adapter" / "a").read_text() == "x"


def test_a_server_of_the_users_own_is_asked_instead(tmp_path: Path) -> None:
    sweep, pair = live_pair(tmp_path)
    own, nowhere = {"GEO_VLLM_URL": "http://gpu:8000"}, ComputeSettings("", str(tmp_path), tmp_path)
    with served_pair(sweep, pair, nowhere, print, own) as serving:
        assert serving.base_url == "http://gpu:8000/v1" and not serving.kept
    assert live_endpoint({}) is None
    for address in ("http://gpu:8000", "http://gpu:8000/v1/", " http://gpu:8000/ "):
        named = live_endpoint({"GEO_VLLM_URL": address})
        assert named is not None and named.base_url == "http://gpu:8000/v1"
    with pytest.raises(GeoError, match="GEO_VLLM_URL=gpu:8000 is no address"):
        live_endpoint({"GEO_VLLM_URL": "gpu:8000"})
    keyed = live_endpoint({"GEO_VLLM_URL": "http://gpu", "GEO_ENDPOINT_KEY": "secret"})
    assert keyed is not None and keyed.key is not None
    assert "secret" not in repr(keyed)
    assert sweep.base.sampling.max_tokens == sweep.run.max_turn_length
    assert sweep.base.sampling.extra["chat_template_kwargs"] == {"enable_thinking": False}
