"""A real Postgres of this machine: a cluster of its own in a temporary folder, on a free loopback port."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER, PASSWORD, DATABASE = "dagster", "planted:pg/password", "dagster"


def postgres_programs() -> dict[str, str] | None:
    """`initdb` and `pg_ctl` by path, from PATH or Debian's folders; None where there is no Postgres."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name)
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, reversed(folders))])
    found = {name: shutil.which(name, path=path) for name in ("initdb", "pg_ctl", "postgres")}
    return {name: where for name, where in found.items() if where} if all(found.values()) else None


@contextmanager
def postgres() -> Iterator[dict[str, str]]:
    """The variables that `deploy/dagster-aws.yaml` takes its database from, while a server runs.

    Raises:
        RuntimeError: the server does not start; its log is the message.
    """
    programs = postgres_programs()
    if programs is None:
        raise RuntimeError("there is no Postgres on this machine")
    folder = Path(tempfile.mkdtemp(prefix="geo-pg-"))
    try:
        owner = _owner()
        if owner is not None:
            os.chown(folder, owner, -1)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        data, log, port = folder / "data", folder / "log", _free_port()
        initialise = [programs["initdb"], "-D", str(data), "-U", USER, "-A", "scram-sha-256", "--no-sync"]
        _run([*initialise, f"--pwfile={secret}", "-E", "UTF8", "--locale=C"], owner, log)
        options = f"-h 127.0.0.1 -p {port} -k {folder} -c fsync=off -c max_connections=60"
        _run([programs["pg_ctl"], "-D", str(data), "-l", str(log), "-o", options, "-w", "start"], owner, log)
        try:
            _create_database(port)
            yield {
                "DAGSTER_PG_HOST": "127.0.0.1",
                "DAGSTER_PG_PORT": str(port),
                "DAGSTER_PG_DB": DATABASE,
                "DAGSTER_PG_USER": USER,
                "DAGSTER_PG_PASSWORD": PASSWORD,
            }
        finally:
            _run([programs["pg_ctl"], "-D", str(data), "-m", "immediate", "-w", "stop"], owner, log)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _owner() -> int | None:
    """Postgres refuses to run as root: the account of Debian's package, or of nobody; None for us."""
    if os.geteuid():
        return None
    accounts = {account.pw_name: account.pw_uid for account in pwd.getpwall()}
    return accounts.get("postgres", accounts["nobody"])


def _run(command: list[str], owner: int | None, log: Path) -> None:
    done = subprocess.run(
        command,
        user=owner,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    if done.returncode:
        said = log.read_text(errors="replace") if log.exists() else ""
        raise RuntimeError(f"{command[0]} failed: {done.stderr}{said}")


def _create_database(port: int) -> None:
    import psycopg2

    connection = psycopg2.connect(
        host="127.0.0.1", port=port, user=USER, password=PASSWORD, dbname="postgres", connect_timeout=30
    )
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
