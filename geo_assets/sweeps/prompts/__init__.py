"""The words a harness adds to the environment's own: one folder per protocol, one file per text.

    tools/   budget, demand, picture_after
    json/    opening, history, turn, picture_after, demand
    swatch/  question

A prompt's version is the hash of its texts. It is part of an arm's identity: a changed word makes the sweeps
under that protocol stale, and no others. The file's last line end is not part of the text; `{name}` stands
for what is filled in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from env_service.canonical import canonical_json, sha256_hex

SHORT = 12


@dataclass(frozen=True)
class Prompt:
    """The texts of one protocol by name, and their version."""

    name: str
    texts: Mapping[str, str]
    version: str

    def __getitem__(self, text: str) -> str:
        return self.texts[text]


@cache
def prompt(name: str) -> Prompt:
    """The prompt of a protocol.

    Raises:
        KeyError: there is none of that name.
    """
    files = sorted((Path(__file__).parent / name).glob("*.txt"))
    if not files:
        raise KeyError(name)
    texts = {path.stem: path.read_text(encoding="utf-8").removesuffix("\n") for path in files}
    version = sha256_hex(canonical_json([name, texts]))[:SHORT]
    return Prompt(name, MappingProxyType(texts), version)
