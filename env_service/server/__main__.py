"""Serve the environment: `python -m env_service.server --tasks eval.jsonl --panos store/ --port 8000`.

Exit codes: 0 after an ordered stop, 1 if it cannot start, 2 for wrong usage. In both cases one line on
standard error, which begins with "error: ", says why.
"""

import argparse
import asyncio
import errno
import json
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from env_service.canonical import atomic_write
from env_service.errors import GeoError

DEFAULT_PORT = 8000

# flag -> (variable that sets its default, type, help). Each is a key of the configuration.
_FLAGS: dict[str, tuple[str, type, str]] = {
    "mode": (
        "OPENENV_MODE",
        str,
        "simulation (reset, step, state, ws, mcp) or production (tools over mcp only)",
    ),
    "play": ("GEO_ENV_PLAY", str, "agentic (all tools), nmpz (no move, pan, zoom, look) or single_shot"),
    "max-turns": ("GEO_ENV_MAX_TURNS", int, "calls of an episode [12]"),
    "view-px": ("GEO_ENV_VIEW_PX", int, "edge of every picture in pixels [640]"),
    "max-concurrent": ("MAX_CONCURRENT_ENVS", int, "sessions at once, over all transports [16]"),
    "assign": (
        "GEO_ENV_ASSIGN",
        str,
        "task of a new MCP session: sequential, random or fixed:N [sequential]; a client that left an "
        "episode unfinished finds that first",
    ),
    "curve": ("GEO_ENV_CURVE", str, "formula of the reward: game or board-v1 [game]"),
    "credit": ("GEO_ENV_CREDIT", str, "none, partial or country_only [none]"),
    "idle-s": ("GEO_ENV_IDLE_S", float, "an unused session ends after this many seconds [300]"),
    "step-timeout-s": ("GEO_ENV_STEP_TIMEOUT_S", float, "a call that takes longer ends its session [30]"),
    "park-after-s": (
        "GEO_ENV_PARK_AFTER_S",
        float,
        "an MCP or HTTP session unused this long may lose its slot [15]",
    ),
    "drain-s": ("GEO_ENV_DRAIN_S", float, "longest wait for answers in flight at SIGTERM [20]"),
    "cache-mb": ("GEO_ENV_CACHE_MB", int, "memory for decoded panoramas [512]"),
    "environment-version": ("GEO_ENV_VERSION", str, "reported with every observation"),
}


def main(argv: Sequence[str] | None = None, environment: Any = None) -> int:
    """Parse, load, serve until stopped.

    Args:
        argv: arguments; the command line's by default.
        environment: a subclass of `GeoGuessrEnvironment` to serve instead of it.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="geoguesser-env-") as scratch:
            asyncio.run(_serve(arguments, environment, Path(scratch)))
    except _WrongUsage as error:
        parser.error(str(error))
    except GeoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


class _WrongUsage(GeoError):
    """The command line itself is wrong, whatever the files hold."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, like every other fault at start."""
        self.exit(2, f"error: {message.rstrip('.')}. See python -m env_service.server --help.\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m env_service.server", description=__doc__)
    parser.add_argument(
        "--config", default=os.environ.get("GEO_ENV_CONFIG"), help="configuration file (JSON)"
    )
    parser.add_argument(
        "--tasks", help="task file (JSON lines); with --panos instead of, or besides, --config"
    )
    parser.add_argument("--panos", help="folder or address of the pictures")
    parser.add_argument("--split", default="eval", help="name of the split that --tasks makes [eval]")
    parser.add_argument(
        "--imagery", choices=["mapillary", "perspective"], help="kind of pictures [mapillary]"
    )
    parser.add_argument(
        "--sample", action="store_true", help="with nothing else to serve, serve three drawn places"
    )
    for flag, (variable, kind, words) in _FLAGS.items():
        parser.add_argument(f"--{flag}", type=kind, help=f"{words} (${variable})")
    parser.add_argument("--origin", action="append", help="browser Origin to let in; may be repeated")
    parser.add_argument(
        "--host", default=os.environ.get("HOST") or "127.0.0.1", help="address to bind [127.0.0.1] ($HOST)"
    )
    parser.add_argument(
        "--port",
        type=int,
        help=f"port; 0 takes a free one [{DEFAULT_PORT}] ($PORT)",
    )
    parser.add_argument("--ready-file", help='write {"port", "url", "pid"} there once serving')
    parser.add_argument("--exit-with-parent", action="store_true", help="stop when standard input ends")
    return parser


def _values(arguments: argparse.Namespace, scratch: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The configuration's keys: the file's, overridden by variables, overridden by flags. A sample is drawn
    into `scratch`. Beside them, which keys came from which variable."""
    from env_service.server.config import check_flags, read_config

    values: dict[str, Any] = read_config(arguments.config) if arguments.config else {}
    if bool(arguments.tasks) != bool(arguments.panos):
        raise _WrongUsage("--tasks and --panos belong together", "Give both.")
    if arguments.tasks:
        split = {"tasks": arguments.tasks, "panos": arguments.panos}
        if arguments.imagery:
            split["imagery"] = arguments.imagery
        values["splits"] = {**values.get("splits", {}), arguments.split: split}
    if not values.get("splits") and arguments.sample:
        from env_service.sample import write_sample

        tasks, panos = write_sample(scratch)
        values["splits"] = {"sample": {"tasks": str(tasks), "panos": str(panos)}}
    if not values.get("splits"):
        raise _WrongUsage(
            "there is nothing to serve", "Give --tasks and --panos, --config with splits, or --sample."
        )
    flags = {key: given for flag in _FLAGS if (given := getattr(arguments, key := _key(flag))) is not None}
    if wrong := check_flags(flags):
        raise _WrongUsage(wrong)
    values |= flags
    variables = {
        _key(flag): variable for flag, (variable, _, _) in _FLAGS.items() if os.environ.get(variable)
    }
    variables = {key: variable for key, variable in variables.items() if key not in flags}
    values |= {key: os.environ[variable] for key, variable in variables.items()}
    if arguments.origin:
        values["origins"] = [*values.get("origins", ()), *arguments.origin]
    return values, variables


def _key(flag: str) -> str:
    return flag.replace("-", "_")


async def _serve(arguments: argparse.Namespace, environment: Any, scratch: Path) -> None:
    # Binding comes before loading: a port that is taken is told at once.
    values, variables = _values(arguments, scratch)
    listener = _bind(arguments.host, _port(arguments.port))
    import uvicorn

    from env_service.environment import GeoGuessrEnvironment
    from env_service.server.app import create_app
    from env_service.server.config import make_config
    from env_service.server.lifecycle import uvicorn_settings

    config = make_config(values, variables)
    app = create_app(config, environment=environment or GeoGuessrEnvironment)
    server = uvicorn.Server(uvicorn.Config(app, **uvicorn_settings()))
    if arguments.exit_with_parent:
        threading.Thread(target=_stop_at_end_of_input, name="parent", daemon=True).start()
    # uvicorn raises a signal again once it has stopped for it; an ordered stop is no failure, so that changes
    # nothing. One that comes before uvicorn listens for signals is not lost.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    try:
        if server.started:
            _announce(arguments, listener)
    except GeoError:
        server.should_exit = True
        raise
    finally:
        await serving


def _port(given: int | None) -> int:
    """The flag's port, else the variable's, else the default."""
    said = os.environ.get("PORT") if given is None else str(given)
    try:
        return int(said or DEFAULT_PORT)
    except ValueError as error:
        raise GeoError(f"the variable PORT is no number but {said!r}", "Correct or unset PORT.") from error


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is named; on, it costs 40 ms a request.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # Lets a restart take the port while old connections are still in TIME_WAIT; not while another server
    # listens.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        if isinstance(error, socket.gaierror) or getattr(error, "errno", 0) == errno.EADDRNOTAVAIL:
            raise GeoError(
                f"the host {host} is no address of this machine ({reason})",
                "Choose another with --host: 127.0.0.1 for this machine alone, 0.0.0.0 for every address.",
            ) from error
        raise GeoError(
            f"port {port} on {host} cannot be used ({reason})",
            "Choose another with --port; 0 takes a free one.",
        ) from error
    return listener


def _announce(arguments: argparse.Namespace, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    host = "127.0.0.1" if arguments.host in ("0.0.0.0", "::") else arguments.host
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    if arguments.ready_file:
        ready = {"port": port, "url": url, "pid": os.getpid()}
        try:
            atomic_write(Path(arguments.ready_file), json.dumps(ready).encode())
        except OSError as error:
            raise GeoError(
                f"the file {arguments.ready_file} cannot be written ({error.strerror})", "Check --ready-file."
            ) from error
    print(f"serving on {url}", file=sys.stderr, flush=True)


def _stop_at_end_of_input() -> None:
    # Not through sys.stdin: its lock, held by this thread, would abort the interpreter on its way out.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
