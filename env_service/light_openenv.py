"""Importing this imports OpenEnv's server without its optional web page.

That page imports gradio, which costs seconds. OpenEnv does without it by itself where the module cannot be
imported, so it is hidden while OpenEnv's server is first imported and no longer: whoever wants the page
imports `openenv.core.env_server.web_interface` afterwards.
"""

import sys

PAGE = "openenv.core.env_server.web_interface"

if PAGE not in sys.modules:
    sys.modules[PAGE] = None  # type: ignore[assignment]
    try:
        import openenv.core.env_server  # noqa: F401
    finally:
        del sys.modules[PAGE]
