"""Everything that can go wrong between us and Mapillary, and what each fault asks of the caller.

| error | what happened | what the client did | what the caller does |
|---|---|---|---|
| `TokenRefused` | the token is missing, wrong or may not do this | asked once | stop, show the sentence |
| `NotFound` | no such image, or nothing to download for it | asked once | drop the frame, count it |
| `DenseBox` | the answer would be too large | `images_in_bbox` split the box to its limit | take less |
| `LinkExpired` | a signed picture link is over | `picture` resolved it again once | resolve again |
| `RateLimited` | too many requests | waited as told, tried again | go on later |
| `ServiceUnavailable` | no answer, or "not now" | tried again with backoff | record as failed |
| `UnexpectedAnswer` | an answer that makes no sense | tried again where that may help | record as failed |

Statuses mean little upstream (a token fault can be HTTP 500, a missing image is HTTP 400, a timeout says
that it is not transient), so answers are told apart by their bodies; see `_mapillary_answers`.
No text of these errors holds the token or the signature of a link. Each ends with a next step, and `reason`
is its cause in a few words, the same for all requests that fail alike, so that many can be summed up.
"""

from env_service.errors import GeoError


class MapillaryError(GeoError):
    """A request to Mapillary that brought nothing.

    Attributes:
        transient: the same request may succeed later; the client has already tried again if so.
        retry_after_s: seconds the service asked to wait, None where it said nothing.
        reason: the cause without the thing that was asked for ("HTTP 500", "no connection").
        next_step: what to do where the fault itself does not say.
    """

    transient: bool = False
    reason: str = ""
    next_step: str = ""

    def __init__(
        self,
        problem: str,
        fix: str = "",
        *,
        transient: bool | None = None,
        retry_after_s: float | None = None,
        reason: str = "",
    ) -> None:
        super().__init__(problem, fix or type(self).next_step)
        self.transient = type(self).transient if transient is None else transient
        self.retry_after_s = retry_after_s
        self.reason = reason or type(self).reason


class TokenRefused(MapillaryError):
    """The access token is missing, malformed, never issued, expired or lacks the permission."""

    reason = "token refused"
    next_step = "Set MAPILLARY_ACCESS_TOKEN to a valid client token, then run `geo doctor`"


class NotFound(MapillaryError):
    """The image does not exist or is withheld (the service does not say which), or has no such picture."""

    reason = "not found"
    next_step = "Leave it out, or check its id"


class DenseBox(MapillaryError):
    """The service refuses to look at that many images at once."""

    reason = "too much at once"
    next_step = "Ask for a smaller box"


class LinkExpired(MapillaryError):
    """A signed picture link that is no longer honoured; resolve it again."""

    reason = "link expired"
    next_step = (
        "Run the same command again: links are resolved anew, and this computer's clock should be right"
    )


class RateLimited(MapillaryError):
    """The application asked too much in too short a time."""

    transient = True
    reason = "request limit reached"
    next_step = "Lower GEO_REQUESTS_PER_MINUTE, or run the same command again later"


class ServiceUnavailable(MapillaryError):
    """No connection, no answer in time, a server fault or a query timeout."""

    transient = True
    reason = "not answered"
    next_step = "Check the connection, then run the same command again later"


class UnexpectedAnswer(MapillaryError):
    """An answer of the wrong kind: HTML for JSON, cut-off JSON, a text for a picture, an unknown refusal."""

    transient = True
    reason = "an answer of the wrong kind"
    next_step = (
        "Check MAPILLARY_GRAPH_URL, MAPILLARY_TILES_URL and any proxy, then run the same command again"
    )
