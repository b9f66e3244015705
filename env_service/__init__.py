"""A GeoGuessr-like environment served over HTTP, WebSocket and MCP; deployable alone."""

__version__ = "0.1.0"
