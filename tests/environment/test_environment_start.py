"""Starting, refusing to start, and stopping."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from environment_lab import REPOSITORY, Server, World, ask, serve, until

from env_service.errors import GeoError
from env_service.server.__main__ import main


def test_faults_at_start_are_one_sentence(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(world.tasks.read_text().splitlines()[0].replace("48.8", "98.8") + "\n")
    config = tmp_path / "config.json"
    config.write_text('{"splits": {"eval": {"tasks": "t.jsonl", "panos": ".", "colour": "red"}}}')
    twice = tmp_path / "twice.json"
    twice.write_text('{"max_turns": 3, "max_turns": 30}')
    deep = tmp_path / "deep.json"
    deep.write_text('{"splits": ' + "[" * 200_000 + "]" * 200_000 + "}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        faults = [
            (["--tasks", str(bad), "--panos", str(world.panos)], "bad.jsonl:1"),
            (["--tasks", str(tmp_path / "no.jsonl"), "--panos", str(world.panos)], "no.jsonl"),
            (["--tasks", str(world.tasks), "--panos", str(tmp_path / "none")], "no picture folder"),
            ([*world.arguments, "--port", port], f"port {port}"),
            ([*world.arguments, "--port", "70000"], "port 70000"),
            ([*world.arguments, "--host", "no.such.host.invalid"], "Choose another with --host"),
            ([*world.arguments, "--host", "192.0.2.1"], "Choose another with --host"),
            (["--config", str(config)], "colour"),
            (["--config", str(tmp_path / "none.json")], "none.json"),
            ([*world.arguments, "--assign", "fixed:5"], "fixed:4"),
            (["--config", str(twice)], "twice"),
            (["--config", str(deep)], "deep.json is nested too deep"),
            ([*world.arguments, "--ready-file", str(bad / "ready.json")], "--ready-file"),
        ]
        for arguments, words in faults:
            assert main(["--port", "0", *arguments]) == 1
            said = capsys.readouterr()
            assert said.out == "" and words in said.err and len(said.err.strip().splitlines()) == 1, said.err
            assert said.err.startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "many"], "--port"),
        (["--mode", "foo"], "--mode: input should be 'simulation' or 'production'"),
        (["--assign", "banana"], "--assign: it is one of sequential, random, fixed:N"),
        (["--assign", "fixed:-1"], "fixed:N"),
        (["--play", "blindfolded"], "agentic"),
        (["--curve", "steep"], "board-v1"),
        (["--credit", "much"], "--credit"),
        (["--imagery", "satellite"], "--imagery"),
        (["--max-turns", "0"], "--max-turns"),
        (["--max-concurrent", "many"], "--max-concurrent"),
        (["--idle-s", "nan"], "--idle-s"),
        (["--surprise"], "--surprise"),
    ],
)
def test_wrong_usage_is_told_before_any_file_is_read(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as usage:
        main(["--port", "0", "--tasks", "none.jsonl", "--panos", "none", *arguments])
    said = capsys.readouterr()
    assert usage.value.code == 2 and said.out == ""
    assert said.err.startswith("error: ") and words in said.err and len(said.err.splitlines()) == 1


@pytest.mark.parametrize(("arguments", "words"), [([], "nothing to serve"), (["--tasks", "t"], "--panos")])
def test_half_a_command_line_is_wrong_usage(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as usage:
        main(arguments)
    said = capsys.readouterr().err
    assert usage.value.code == 2 and said.startswith("error: ") and words in said


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GEO_ENV_ASSIGN", "banana"),
        ("GEO_ENV_MAX_TURNS", "-1"),
        ("GEO_ENV_MAX_TURNS", "many"),
        ("OPENENV_MODE", "x"),
        ("MAX_CONCURRENT_ENVS", "0"),
        ("GEO_ENV_CURVE", "steep"),
        ("PORT", "http"),
    ],
)
def test_a_wrong_variable_is_a_fault_at_start_that_names_it(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
) -> None:
    monkeypatch.setenv(variable, value)
    assert main([*([] if variable == "PORT" else ["--port", "0"]), *world.arguments]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: the variable {variable} is ") and f"unset {variable}." in said
    assert len(said.splitlines()) == 1


def test_a_flag_beats_a_wrong_variable_and_an_empty_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from env_service.server.__main__ import DEFAULT_PORT, _port

    monkeypatch.setenv("PORT", "http")
    assert _port(7) == 7
    monkeypatch.setenv("PORT", "")
    assert _port(None) == DEFAULT_PORT
    monkeypatch.setenv("PORT", "7860")
    assert _port(None) == 7860


def test_a_fault_at_start_is_an_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "env_service.server", "--tasks", "none.jsonl", "--panos", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=60, check=False)
    assert (
        done.returncode == 1
        and done.stderr.startswith("error: ")
        and "none.jsonl" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_a_configuration_file_and_an_end_with_the_parent(world: World, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    splits = {
        name: {
            "tasks": os.path.relpath(world.tasks, tmp_path),
            "panos": os.path.relpath(world.panos, tmp_path),
        }
        for name in ("train", "eval")
    }
    config.write_text(json.dumps({"splits": splits, "max_turns": 5, "environment_version": "v-7"}))
    with serve(tmp_path, "--config", str(config), "--max-turns", "6") as server, server.connect() as ws:
        first = ask(ws, {"type": "reset", "data": {}})["data"]["observation"]
        assert first["metadata"]["split"] == "train" and first["metadata"]["environment_version"] == "v-7"
        assert first["steps_remaining"] == 6
        assert [split["name"] for split in server.get("/geoguesser_env/splits")] == ["train", "eval"]
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert server.process.wait(10) == 0


def test_neither_gradio_nor_torch_is_imported_to_serve() -> None:
    code = (
        "import sys, env_service.server.app; from env_service.geography import geography; "
        "geography().describe(48.85, 2.35); print({'gradio', 'torch', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True
    )
    assert done.stdout.strip() == "set()"


def test_openenvs_own_page_can_still_be_imported_by_whoever_wants_it() -> None:
    code = (
        "import importlib.util, env_service.server.app; "
        "print(importlib.util.find_spec('openenv.core.env_server.web_interface') is not None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True
    )
    assert done.stdout.strip() == "True"


def test_an_application_for_uvicorns_command_line(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import env_service.server.app as module

    with pytest.raises(GeoError, match="GEO_ENV_CONFIG"):
        _ = module.app
    config = tmp_path / "config.json"
    split = {"tasks": str(world.tasks), "panos": str(world.panos)}
    config.write_text(json.dumps({"splits": {"eval": split}}))
    monkeypatch.setenv("GEO_ENV_CONFIG", str(config))
    assert module.app.title == "geoguesser_env"


def test_sigterm_answers_what_is_in_flight_and_refuses_what_is_new(world: World, tmp_path: Path) -> None:
    with serve(tmp_path, *world.arguments, module="environment_lab_server") as server:
        with server.connect() as busy, server.connect() as idle:
            ask(busy, {"type": "reset"})
            ask(idle, {"type": "reset"})
            busy.send(json.dumps({"type": "step", "data": {"op": "nap", "seconds": 1.0}}))
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            assert ask(idle, {"type": "step", "data": {"op": "list_pins"}})["data"]["code"] == "SHUTTING_DOWN"
            with server.connect() as late:
                assert json.loads(late.recv(10))["data"]["code"] == "SHUTTING_DOWN"
            assert json.loads(busy.recv(10))["data"]["observation"]["feedback"] == "awake"
        assert server.process.wait(60) == 0
        assert "Traceback" not in server.log.read_text()


def test_sessions_are_freed_after_many_episodes(server: Server) -> None:
    before = server.metric("geo_sessions")
    for index in range(40):
        with server.connect() as ws:
            ask(ws, {"type": "reset", "data": {"seed": index}})
            ask(ws, {"type": "step", "data": {"op": "guess", "lat": 0, "lon": 0}})
    until(lambda: server.metric("geo_sessions") <= before, 5)
    threads = Path(f"/proc/{server.process.pid}/task")
    assert not threads.exists() or len(list(threads.iterdir())) < 60
