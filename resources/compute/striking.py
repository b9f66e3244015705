"""A job's log without the secrets in it: programs print what they are given.

A log is read for messages, for a job's last words, for people. So the words are struck where a place hands
lines out, once for everybody who reads them.
"""

from collections.abc import Iterable, Iterator

from pydantic import SecretStr

HIDDEN = "***"


class Struck:
    """Strikes some words out of lines.

    Args:
        secrets: what is struck, with and without the blanks around it; empty ones are none.
    """

    def __init__(self, secrets: Iterable[SecretStr]) -> None:
        values = [value.get_secret_value() for value in secrets]
        words = {word for value in values for word in (value, value.strip()) if word}
        # The longest first: one may be a part of another.
        self._words = sorted(words, key=len, reverse=True)

    def of(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines, struck."""
        for line in lines:
            for word in self._words:
                line = line.replace(word, HIDDEN)
            yield line
