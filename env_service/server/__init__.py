"""The network side of the environment: sessions, WebSocket, MCP, HTTP, metrics.

Run it with `python -m env_service.server`.
"""
