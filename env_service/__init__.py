"""A GeoGuessr-like environment served over HTTP, WebSocket and MCP; deployable without the rest of the project."""

__version__ = "0.1.0"
