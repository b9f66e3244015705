"""What the libraries may write into the log.

Of every message that it cannot use, the MCP library logs kilobytes, with what was sent, and of every failure
a traceback of forty lines; so does the web server of what a route raises. A client could fill a disk with
that. So a record of these libraries is dropped if the client has been told, and is otherwise one line that
says where and which error, never what was sent. Words of the web server's own, without an error, stand as
they are: it says nothing of clients at the levels that are shown.
"""

import logging
import traceback
from importlib.util import find_spec
from pathlib import Path

_WEB_SERVER = "uvicorn"
_LIBRARIES = ("mcp", "fastmcp", _WEB_SERVER)
_TOLD_TO_THE_CLIENT = (
    "Failed to validate request",
    "Failed to validate notification",
    "Response ID ",
    "Invalid HTTP request received",
    "Invalid UTF-8 sequence received",
    "Unsupported upgrade request",
)


def keep_clients_out_of_the_log() -> None:
    """Filter the handlers that the libraries' records reach.

    A filter on a logger never sees what loggers below it pass on, so it stands on the handlers. Root is given
    one, because the library would add its own, without a filter, at its first record.
    """
    logging.basicConfig()
    for logger in (logging.getLogger(), *map(logging.getLogger, _LIBRARIES)):
        for handler in logger.handlers:
            handler.addFilter(without_clients_words)


def without_clients_words(record: logging.LogRecord) -> bool:
    """A filter: whether to keep a record. One of the libraries is cut down to where and which error."""
    if not record.pathname.startswith(_FOLDERS):
        return True
    if str(record.msg).startswith(_TOLD_TO_THE_CLIENT):
        return False
    if record.pathname.startswith(_WEB_SERVERS_FOLDER) and not record.exc_info:
        return True
    if not getattr(record, "geo_cut", False):
        error = f": {named(record.exc_info[1])}" if record.exc_info and record.exc_info[1] else ""
        record.msg, record.args = f"{record.module}:{record.lineno} reports a fault{error}", ()
        record.exc_info = record.exc_text = record.stack_info = None
        # Other handlers see the same record.
        record.geo_cut = True
    return True


def named(error: BaseException) -> str:
    """The type of an error and where it was raised; its words may be the client's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{at}"


def _folder(library: str) -> str:
    found = find_spec(library)
    return str(Path(found.origin or "").parent) + "/" if found else "\0"


_FOLDERS = tuple(map(_folder, _LIBRARIES))
_WEB_SERVERS_FOLDER = _folder(_WEB_SERVER)
