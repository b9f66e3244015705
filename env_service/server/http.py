"""`/reset`, `/step` and `/state`: the same sessions for a caller without a socket (simulation mode only).

OpenEnv's own routes make a new environment for every request, outside every cap. Here `/reset` opens a
session, which counts against the cap like any other, and names it in the header `x-session-id`; `/step` and
`/state` want that header back. A session ends after the idle limit, or is parked when its slot is needed (see
`sessions`).
"""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic_core import to_json
from starlette.requests import ClientDisconnect

from env_service.models import GeoObservation
from env_service.server.limits import BodyRefused, read_body
from env_service.server.sessions import Refused, Session, Sessions
from env_service.server.wire import BadMessage, observation_data, parse_object

HEADER = "x-session-id"

_STATUS = {
    "INVALID_JSON": 400,
    "VALIDATION_ERROR": 400,
    "BAD_SELECTION": 400,
    "BODY_TIMEOUT": 408,
    "CLIENT_LEFT": 400,
    "FRAME_TOO_LARGE": 413,
    "NOT_RESET": 409,
    "EPISODE_DONE": 409,
    "SESSION_EXPIRED": 410,
    "CAPACITY_REACHED": 503,
    "SHUTTING_DOWN": 503,
    "STEP_TIMEOUT": 504,
}


def add_control_routes(app: FastAPI, sessions: Sessions) -> None:
    """Register the three routes."""

    async def reset(request: Request) -> Response:
        """Start an episode: split, index, seed, episode_id. Opens a session unless one is named."""
        body = await _body(request)
        session = _named(request, sessions) or sessions.open("http")
        try:
            return _observation(await sessions.reset(session, body), session)
        except Refused:
            if session.opening is None:
                await sessions.close(session)
            raise

    async def step(request: Request) -> Response:
        """Make one call: {"action": {...}}. Spends a turn."""
        body = await _body(request)
        action = body.get("action")
        if not isinstance(action, dict):
            raise Refused("VALIDATION_ERROR", "a step has an object named action")
        session = _required(request, sessions)
        return _observation(await sessions.apply(session, action), session)

    async def state(request: Request) -> Response:
        """Where the session stands."""
        found = sessions.state(_required(request, sessions))
        return Response(found.model_dump_json(), media_type="application/json")

    async def refused(_: Request, refusal: Exception) -> Response:
        assert isinstance(refusal, Refused)
        sessions.metrics.errors[refusal.code] += 1
        error = {"code": refusal.code, "message": str(refusal), **refusal.more}
        return JSONResponse({"error": error}, _STATUS.get(refusal.code, 500))

    app.add_exception_handler(Refused, refused)
    for method, path, endpoint in (
        ("POST", "/reset", reset),
        ("POST", "/step", step),
        ("GET", "/state", state),
    ):
        app.add_api_route(
            path, _counted(sessions, endpoint), methods=[method], tags=["Control"], response_model=None
        )


def _counted(sessions: Sessions, endpoint: Any) -> Any:
    async def counted(request: Request) -> Response:
        with sessions.busy():
            answer: Response = await endpoint(request)
            return answer

    counted.__name__, counted.__doc__ = endpoint.__name__, endpoint.__doc__
    return counted


async def _body(request: Request) -> dict[str, Any]:
    try:
        data = await read_body(request.receive)
    except BodyRefused as refusal:
        raise Refused(refusal.code, str(refusal.detail)) from None
    except ClientDisconnect:
        # Told to nobody, and counted.
        raise Refused("CLIENT_LEFT", "the client left before its body was there") from None
    try:
        return parse_object(data or b"{}")
    except BadMessage as error:
        raise Refused("INVALID_JSON", str(error)) from None


def _named(request: Request, sessions: Sessions) -> Session | None:
    session_id = request.headers.get(HEADER)
    return sessions.find(session_id, "http") if session_id else None


def _required(request: Request, sessions: Sessions) -> Session:
    session = _named(request, sessions)
    if session is None:
        raise Refused("NOT_RESET", f"reset first, and send back the header {HEADER} of its answer")
    return session


def _observation(observation: GeoObservation, session: Session) -> Response:
    return Response(
        to_json(observation_data(observation)),
        media_type="application/json",
        headers={HEADER: session.id},
    )
