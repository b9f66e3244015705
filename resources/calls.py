"""What the calls to an endpoint ended in, and the tokens they took: counted once each, as they end."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from resources.replies import ANSWERED, FAULTS, NO_TOKENS, Reply, Usage


@dataclass(frozen=True)
class Price:
    """US dollars for a million tokens, in and out."""

    input_usd: float
    output_usd: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """US dollars of some tokens."""
        return (prompt_tokens * self.input_usd + completion_tokens * self.output_usd) / 1e6


@dataclass(frozen=True)
class Tally:
    """Calls by what they ended in, and their tokens, those of answers that were faults among them."""

    causes: Mapping[str, int]
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def calls(self) -> int:
        """All of them."""
        return sum(self.causes.values())

    @property
    def faults(self) -> dict[str, int]:
        """Those that gave no reply, by fault, in the order of `FAULTS`; none that did not occur."""
        return {fault: self.causes[fault] for fault in FAULTS if self.causes.get(fault)}

    def __add__(self, other: "Tally") -> "Tally":
        causes = Counter(self.causes)
        causes.update(other.causes)
        return Tally(
            dict(causes),
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


class Calls:
    """A running tally. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._causes: Counter[str] = Counter()
        self._usage = Usage()

    def answered(self, usage: Usage) -> None:
        """A call gave a reply."""
        with self._lock:
            self._count(ANSWERED, usage)

    def failed(self, fault: str, usage: Usage = NO_TOKENS) -> None:
        """A call ended in a fault, which may have cost tokens."""
        with self._lock:
            self._count(fault, usage)

    def tally(self) -> Tally:
        """As it stands now."""
        with self._lock:
            return Tally(dict(self._causes), self._usage.prompt_tokens, self._usage.completion_tokens)

    def _count(self, cause: str, usage: Usage) -> None:
        self._causes[cause] += 1
        self._usage = Usage(
            self._usage.prompt_tokens + usage.prompt_tokens,
            self._usage.completion_tokens + usage.completion_tokens,
        )


def causes_of(replies: Iterable[Reply]) -> dict[str, int]:
    """What all the calls behind some replies ended in."""
    causes: Counter[str] = Counter()
    for reply in replies:
        causes[ANSWERED] += 1
        causes.update(reply.faults)
    return dict(causes)
