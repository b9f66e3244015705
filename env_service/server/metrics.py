"""Counters for `/metrics`, in Prometheus' text format, written by hand: a client library would be the bigger
part.

All counters are changed from the event loop's thread only, so none needs a lock.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the step latency histogram, seconds."""


class Metrics:
    """What the service counts.

    Args:
        gauges: name -> (help, function that reads the present value), asked at every scrape.
    """

    def __init__(self) -> None:
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self.opened: Counter[str] = Counter()
        self.refused = 0
        self.steps: Counter[tuple[str, str]] = Counter()
        self.episodes: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._buckets = [0] * (len(BUCKETS_S) + 1)
        self._seconds = 0.0

    def step(self, transport: str, op: str, seconds: float) -> None:
        """Count one call that reached an environment, and how long it took."""
        self.steps[transport, op] += 1
        self._buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self._seconds += seconds

    def render(self) -> str:
        """The page for a Prometheus scrape."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        for name, (words, read) in self.gauges.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            yield from _head(name, kind, words)
            yield f"{name} {read():g}"
        yield from _head("geo_sessions_opened_total", "counter", "Sessions opened, by transport.")
        yield from (
            f'geo_sessions_opened_total{{transport="{t}"}} {n}' for t, n in sorted(self.opened.items())
        )
        yield from _head(
            "geo_sessions_refused_total", "counter", "Sessions refused because the cap was reached."
        )
        yield f"geo_sessions_refused_total {self.refused}"
        yield from _head("geo_steps_total", "counter", "Calls that reached an environment.")
        for (transport, op), count in sorted(self.steps.items()):
            yield f'geo_steps_total{{transport="{transport}",op="{op}"}} {count}'
        yield from _head("geo_episodes_total", "counter", "Episodes that ended, by outcome.")
        yield from (f'geo_episodes_total{{outcome="{o}"}} {n}' for o, n in sorted(self.episodes.items()))
        yield from _head("geo_errors_total", "counter", "Errors answered, by code.")
        yield from (f'geo_errors_total{{code="{c}"}} {n}' for c, n in sorted(self.errors.items()))
        yield from self._histogram()

    def _histogram(self) -> Iterator[str]:
        yield from _head("geo_step_seconds", "histogram", "Time of one call inside the environment.")
        total = 0
        for bound, count in zip([f"{b:g}" for b in BUCKETS_S] + ["+Inf"], self._buckets, strict=True):
            total += count
            yield f'geo_step_seconds_bucket{{le="{bound}"}} {total}'
        yield f"geo_step_seconds_sum {self._seconds:.6f}"
        yield f"geo_step_seconds_count {total}"


def _head(name: str, kind: str, words: str) -> Iterator[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"
