"""Every way in which a client's request can fail, by name."""

from websockets.exceptions import InvalidStatus

from env_service.errors import GeoError


class ServerError(GeoError):
    """The server answered with an error; `code` is its name on the wire. The session goes on."""

    code = "ERROR"

    def __init__(self, message: str, code: str | None = None, fix: str = "") -> None:
        super().__init__(message, fix)
        if code is not None:
            self.code = code


class CapacityReached(ServerError):
    """Every session of the server is in use. Try again later, or serve with a larger cap."""

    code = "CAPACITY_REACHED"


class SessionExpired(ServerError):
    """The session was unused for too long, or its call took too long; it is over."""

    code = "SESSION_EXPIRED"


class ShuttingDown(ServerError):
    """The server is going down."""

    code = "SHUTTING_DOWN"


class NotReset(ServerError):
    """A step without an episode."""

    code = "NOT_RESET"


class EpisodeDone(ServerError):
    """A step after the end of the episode; nothing has changed."""

    code = "EPISODE_DONE"


class BadSelection(ServerError):
    """A reset that names no task of the server."""

    code = "BAD_SELECTION"


class StepTimeout(SessionExpired):
    """The call took longer than the server allows; the session is over."""

    code = "STEP_TIMEOUT"


class Unreadable(ServerError):
    """The server's answer is not what this client knows, as that of a server of another version may be."""

    code = "UNREADABLE"

    def __init__(self, message: str) -> None:
        super().__init__(message, fix="Use the client of the server's own version; its /metadata names that.")


class NotSendable(GeoError, ValueError):
    """What the caller gave cannot be written as JSON. Nothing was sent, and the session goes on."""


class SessionLost(GeoError):
    """The connection is gone, and the episode with it."""


NAMED: dict[str, type[ServerError]] = {
    error.code: error
    for error in (
        CapacityReached,
        SessionExpired,
        ShuttingDown,
        NotReset,
        EpisodeDone,
        BadSelection,
        StepTimeout,
    )
}
CLOSE_CODES: dict[int, type[ServerError]] = {1012: ShuttingDown, 1013: CapacityReached, 4408: SessionExpired}


def unreachable(base_url: str, error: Exception) -> SessionLost:
    """Nobody answers there, or somebody who serves no episodes over `/ws`."""
    if isinstance(error, InvalidStatus) and error.response.status_code in (403, 404):
        return SessionLost(
            f"{base_url} answers, but not on /ws (HTTP {error.response.status_code})",
            "A server in production mode is played over /mcp alone; start one with --mode simulation.",
        )
    return SessionLost(f"{base_url} cannot be reached ({error})", "Is the service running there?")
