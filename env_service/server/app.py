"""The service as one ASGI application.

OpenEnv contributes its types and its discovery routes (`/metadata`, `/health`, Task API). Of its routes that
play none is served: they step environments outside every cap, and its sockets open in production mode too.
"""

import os
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.routing import BaseRoute, Route

from env_service.environment import GeoGuessrEnvironment
from env_service.errors import GeoError
from env_service.game import Game
from env_service.models import GeoObservation, GeoState
from env_service.play import DESCRIPTION, NAME, EpisodeEnvironment
from env_service.server.config import ServerConfig, load_game, make_config, read_config
from env_service.server.guard import Guard
from env_service.server.http import add_control_routes
from env_service.server.lifecycle import lifespan
from env_service.server.limits import Limits
from env_service.server.mcp import PATH as MCP_PATH
from env_service.server.mcp import build_mcp
from env_service.server.mcp_ws import mcp_websocket_endpoint
from env_service.server.metrics import Metrics
from env_service.server.proxy import behind_proxy
from env_service.server.sessions import Sessions
from env_service.server.web import add_web
from env_service.server.ws import websocket_endpoint
from env_service.toolbox import action_schema, listed

CONFIG_VARIABLE = "GEO_ENV_CONFIG"

# What is kept of OpenEnv's routes: they describe and list, and touch no episode.
_DISCOVERY = {
    "/health",
    "/metadata",
    "/list_environments",
    "/{env_name}/splits",
    "/{env_name}/tasks",
    "/{env_name}/num_tasks",
    "/{env_name}/task",
    "/{env_name}/task_range",
}


def create_app(
    config: ServerConfig,
    game: Game | None = None,
    environment: type[EpisodeEnvironment] = GeoGuessrEnvironment,
) -> FastAPI:
    """Build the service.

    Args:
        config: what to serve and how.
        game: tasks and imagery; loaded from the configuration if not given.
        environment: the environment class; a subclass brings its own tools.

    Raises:
        GeoError: something configured cannot be served.
    """
    world = game if game is not None else load_game(config)
    metrics = Metrics()
    sessions = Sessions(
        lambda: environment(world),
        cap=config.max_concurrent,
        idle_s=config.idle_s,
        step_timeout_s=config.step_timeout_s,
        park_after_s=config.park_after_s,
        metrics=metrics,
    )
    _add_gauges(metrics, sessions, world)
    mcp_app, gate = build_mcp(sessions, environment, world, config.assign)
    app = FastAPI(
        title=NAME,
        description=DESCRIPTION,
        version=config.environment_version,
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan(sessions, mcp_app, config.drain_s, world.warm),
    )
    app.state.sessions = sessions
    app.router.routes.append(Route(MCP_PATH, endpoint=gate))
    app.add_api_websocket_route(MCP_PATH, mcp_websocket_endpoint(gate))
    simulation = config.mode == "simulation"
    if simulation:
        app.add_api_websocket_route("/ws", websocket_endpoint(sessions))
        add_control_routes(app, sessions)
    add_web(app, simulation)
    _add_descriptions(app, environment, metrics)
    app.router.routes.extend(_discovery_routes(lambda: environment(world)))
    app.add_exception_handler(GeoError, _explain)
    app.add_exception_handler(RequestValidationError, _invalid)
    sockets = [MCP_PATH, "/ws"] if simulation else [MCP_PATH]
    app.add_middleware(Limits)
    app.add_middleware(Guard, ws_paths=sockets, origins=config.origins, proxied=behind_proxy())
    return app


def schema(environment: type[EpisodeEnvironment]) -> dict[str, Any]:
    """What `/schema` answers: the shapes on the wire, and the tools as a harness gives them to a model."""
    specs = environment.specs()
    return {
        "action": action_schema(specs),
        "observation": GeoObservation.model_json_schema(),
        "state": GeoState.model_json_schema(),
        "tools": [spec.definition() for spec in listed(specs)],
    }


def app_from_environment() -> FastAPI:
    """The application for a web server's command line, configured by the file that GEO_ENV_CONFIG names."""
    path = os.environ.get(CONFIG_VARIABLE)
    if not path:
        raise GeoError(f"{CONFIG_VARIABLE} is not set", "Set it to the path of a configuration file.")
    return create_app(make_config(read_config(path)))


def __getattr__(name: str) -> Any:
    # `server.app:app` is what openenv.yaml names; built when asked for, so that importing stays free of
    # effects.
    if name == "app":
        return app_from_environment()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _add_descriptions(app: FastAPI, environment: type[EpisodeEnvironment], metrics: Metrics) -> None:
    @app.get("/schema", tags=["Schema"])
    async def get_schema() -> dict[str, Any]:
        """JSON Schemas of action, observation and state, and the tools."""
        return schema(environment)

    @app.get("/metrics", tags=["Health"], response_class=PlainTextResponse)
    async def get_metrics() -> PlainTextResponse:
        """Counters in Prometheus' text format."""
        return PlainTextResponse(metrics.render(), media_type="text/plain; version=0.0.4")


def _discovery_routes(factory: Any) -> list[BaseRoute]:
    """OpenEnv's discovery routes, taken from an application that is never served."""
    from openenv.core.env_server.http_server import HTTPEnvServer
    from openenv.core.env_server.types import Action, Observation

    whole = FastAPI()
    HTTPEnvServer(factory, Action, Observation, max_concurrent_envs=1, env_name=NAME).register_routes(
        whole, mode="production"
    )
    return [route for route in whole.router.routes if getattr(route, "path", "") in _DISCOVERY]


async def _explain(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 400)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    """FastAPI's own answer repeats the input, which may be an infinity that no JSON can hold."""
    assert isinstance(error, RequestValidationError)
    faults = [{"loc": [str(part) for part in e["loc"]], "msg": e["msg"]} for e in error.errors()[:8]]
    return JSONResponse({"detail": faults}, 422)


def _add_gauges(metrics: Metrics, sessions: Sessions, game: Game) -> None:
    metrics.gauges = {
        "geo_sessions": ("Sessions that hold a slot.", lambda: len(sessions.live)),
        "geo_sessions_max": ("Slots.", lambda: sessions.cap),
        "geo_sessions_parked": ("Sessions that wait without a slot.", lambda: len(sessions.parked)),
        "geo_episodes_left": (
            "Unfinished MCP episodes whose clients have left.",
            lambda: len(sessions.left),
        ),
        "geo_cache_hits_total": ("Panoramas found decoded.", lambda: game.cache.hits if game.cache else 0),
        "geo_cache_misses_total": ("Panoramas decoded.", lambda: game.cache.misses if game.cache else 0),
        "geo_cache_bytes": (
            "Memory of decoded panoramas.",
            lambda: game.cache.held_bytes if game.cache else 0,
        ),
    }
