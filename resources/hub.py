"""One look at a model on the Hub: does the pinned revision exist, and which commit is it.

Nothing is downloaded. `HF_ENDPOINT` names another Hub (a mirror, or a server of a test); `HF_TOKEN` is sent
where it is set, and never shown.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from env_service.discovery import proxy_of
from env_service.errors import GeoError

ENDPOINT = "https://huggingface.co"
ATTEMPTS = 4
TIMEOUT_S = 30.0
PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
AGAIN = (408, 429, 500, 502, 503, 504)
COMMIT = re.compile(r"[0-9a-f]{40}")
REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class HubError(GeoError):
    """The Hub does not answer, or does not have what was asked for."""


@dataclass(frozen=True)
class HubModel:
    """A model at a commit.

    Attributes:
        repo: its name, "owner/model".
        commit: the commit's SHA, 40 hexadecimal digits.
        files: names of its files, sorted.
        last_modified: when the commit was made, as the Hub words it.
        gated: whether its files are given out on request only.
        architecture: the class that its configuration names; empty where it names none.
    """

    repo: str
    commit: str
    files: tuple[str, ...]
    last_modified: str
    gated: bool
    architecture: str


def hub_endpoint(environ: Mapping[str, str] | None = None) -> str:
    """The Hub's address: `HF_ENDPOINT`, or the public one."""
    return ((os.environ if environ is None else environ).get("HF_ENDPOINT") or ENDPOINT).rstrip("/")


def hub_token(environ: Mapping[str, str] | None = None) -> SecretStr | None:
    """`HF_TOKEN`, where it is set.

    Raises:
        GeoError: it holds a character that no token has.
    """
    token = (os.environ if environ is None else environ).get("HF_TOKEN", "").strip()
    if any(not "!" <= letter <= "~" for letter in token):
        raise GeoError("HF_TOKEN holds a character that no token has", "Copy the token again")
    return SecretStr(token) if token else None


def observe_model(
    repo: str,
    revision: str,
    *,
    endpoint: str | None = None,
    token: SecretStr | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> HubModel:
    """Ask the Hub for a model at a revision.

    Args:
        repo: "owner/model".
        revision: a commit, a tag or a branch.
        endpoint: the Hub's address; `HF_ENDPOINT` or the public one if not given.
        token: sent as bearer.
        pause: waits between attempts.

    Raises:
        HubError: there is no such model or revision, it may not be seen, the Hub cannot be reached, or it
            answers with something else than a model at that commit.
    """
    if not REPO.fullmatch(repo):
        raise HubError(f"{repo!r} is no name of a model on the Hub", "Write it as owner/model")
    base = (endpoint or hub_endpoint()).rstrip("/")
    url = f"{base}/api/models/{repo}/revision/{quote(revision, safe='')}"
    headers = {"authorization": f"Bearer {token.get_secret_value()}"} if token else {}
    answer = _get(url, headers, base, pause)
    if answer.status_code in (401, 403, 404):
        raise HubError(*_refusal(answer, repo, revision, token is not None))
    if answer.status_code != 200:
        raise HubError(f"{base} answered {answer.status_code} for {repo} at {revision}", "Try again later")
    return _model(answer, base, repo, revision)


def _get(url: str, headers: Mapping[str, str], base: str, pause: Callable[[float], None]) -> httpx.Response:
    with httpx.Client(
        headers=dict(headers), timeout=TIMEOUT_S, follow_redirects=True, trust_env=proxy_of(base) is not None
    ) as client:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = client.get(url)
                if answer.status_code not in AGAIN or attempt == ATTEMPTS:
                    return answer
                wait = _asked_to_wait(answer)
            except (httpx.TransportError, httpx.InvalidURL) as fault:
                if attempt == ATTEMPTS or isinstance(fault, httpx.InvalidURL | httpx.UnsupportedProtocol):
                    raise HubError(
                        f"The Hub at {base} cannot be reached ({type(fault).__name__}: {fault})",
                        "Check the network and HF_ENDPOINT",
                    ) from None
                wait = 0.0
            pause(min(max(wait, PAUSE_S * 2 ** (attempt - 1)), MAX_PAUSE_S))
    raise AssertionError("unreachable")


def _asked_to_wait(answer: httpx.Response) -> float:
    try:
        return max(0.0, float(answer.headers.get("retry-after", "0")))
    except ValueError:
        return 0.0


def _refusal(answer: httpx.Response, repo: str, revision: str, with_token: bool) -> tuple[str, str]:
    code = answer.headers.get("x-error-code", "")
    if code == "RevisionNotFound":
        return f"{repo} has no revision {revision} on the Hub", "Correct the pinned revision"
    if answer.status_code == 404:
        return f"There is no model {repo} at {revision} on the Hub", "Correct its name or its revision"
    if with_token:
        return f"The Hub does not show {repo} to the owner of HF_TOKEN", "Ask its owners for access"
    return f"The Hub does not show {repo} without a token", "Set HF_TOKEN, or correct the model's name"


def _model(answer: httpx.Response, base: str, repo: str, revision: str) -> HubModel:
    try:
        body: Any = answer.json()
        commit = str(body["sha"])
        files = tuple(sorted(str(entry["rfilename"]) for entry in body.get("siblings") or ()))
        config = body.get("config") or {}
        names = config.get("architectures") or [""]
        model = HubModel(
            repo=str(body.get("id") or repo),
            commit=commit,
            files=files,
            last_modified=str(body.get("lastModified") or ""),
            gated=bool(body.get("gated")),
            architecture=str(names[0]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise HubError(
            f"{base} answered with something that is no model of the Hub", "Check HF_ENDPOINT"
        ) from None
    if not COMMIT.fullmatch(commit):
        raise HubError(f"{base} gave {repo} at {revision} a commit that is none", "Check HF_ENDPOINT")
    if COMMIT.fullmatch(revision) and commit != revision:
        raise HubError(f"{base} gave commit {commit} of {repo} where {revision} was asked for")
    return model
