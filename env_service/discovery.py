"""What a service has to play, asked over plain HTTP: tools, splits, tasks. Standard library only."""

import ipaddress
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from env_service.client_errors import ServerError, Unreadable, unreachable

ENV_NAME = "geoguesser_env"
DEFAULT_TIMEOUT_S = 60.0


def schema(base_url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> dict[str, Any]:
    """`/schema`: the shapes on the wire and `tools`, the definitions a harness gives to a model."""
    return json_object(_http(base_url, "/schema", None, timeout_s))


def metadata(base_url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> dict[str, Any]:
    """`/metadata`: name, description, version."""
    return json_object(_http(base_url, "/metadata", None, timeout_s))


def splits(base_url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[str]:
    """Names of the splits."""
    found = _http(base_url, f"/{ENV_NAME}/splits", None, timeout_s)
    if not isinstance(found, list):
        raise Unreadable("the server's answer is not a list of splits")
    return [str(json_object(entry).get("name")) for entry in found]


def num_tasks(base_url: str, split: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> int:
    """Number of tasks of a split. Raises ServerError if there is no such split."""
    found = json_object(_http(base_url, f"/{ENV_NAME}/num_tasks", {"split": split}, timeout_s))
    count = found.get("num_tasks")
    if not isinstance(count, int):
        raise Unreadable("the server's answer holds no number of tasks")
    return count


def get_task(base_url: str, split: str, index: int, timeout_s: float = DEFAULT_TIMEOUT_S) -> dict[str, Any]:
    """What `reset` needs to play a task. Raises ServerError if there is none."""
    body = {"split": split, "index": index}
    return json_object(json_object(_http(base_url, f"/{ENV_NAME}/task", body, timeout_s)).get("task"))


def _http(base_url: str, path: str, body: dict[str, Any] | None, timeout_s: float) -> Any:
    url = http_url(base_url) + path
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    proxies: dict[str, str] | None = {} if proxy_of(base_url) is None else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        words = error.read(2000).decode("utf-8", "replace")
        raise ServerError(f"{path} answered {error.code}: {words}", f"HTTP_{error.code}") from error
    except (OSError, ValueError) as error:
        raise unreachable(base_url, error) from error


def json_object(value: Any) -> dict[str, Any]:
    """`value` if it is a JSON object. Raises Unreadable, a ServerError."""
    if not isinstance(value, dict):
        raise Unreadable("the server's answer is not a JSON object")
    return value


def http_url(base_url: str) -> str:
    """The address for HTTP, whichever form was given."""
    url = base_url.rstrip("/")
    return "http" + url.removeprefix("ws") if url.startswith("ws") else url


def ws_url(base_url: str) -> str:
    """The address of the WebSocket."""
    return "ws" + http_url(base_url).removeprefix("http") + "/ws"


def proxy_of(base_url: str) -> Any:
    """None for loopback, which no proxy reaches; else whatever the environment says."""
    host = urlsplit(http_url(base_url)).hostname or ""
    try:
        return None if host == "localhost" or ipaddress.ip_address(host).is_loopback else True
    except ValueError:
        return True
