"""The protocols by name: how an episode is played under each, and the version of its words."""

from collections.abc import Callable, Mapping, Sequence

from geo_assets.sweeps import protocol_json, protocol_tools
from geo_assets.sweeps.prompts import prompt
from geo_assets.sweeps.protocol_tools import Ask, Played, Session, Tool

Play = Callable[[Session, Ask, Sequence[Tool], str, int, int], Played]

PLAYS: Mapping[str, Play] = {protocol_tools.NAME: protocol_tools.play, protocol_json.NAME: protocol_json.play}


def prompt_version(protocol: str) -> str:
    """Version of the words that a protocol adds to the environment's."""
    return prompt(protocol).version
