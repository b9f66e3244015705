"""What a message may cost to read: no rule takes longer than in proportion to its length."""

import json

import pytest

from env_service.server.wire import MAX_BYTES, MAX_VALUES, BadMessage, parse_object
from env_service.tasks import DuplicateKey, distinct_keys


class Counted(str):
    """A key that counts how often it is looked at."""

    looks = 0

    def __eq__(self, other: object) -> bool:
        Counted.looks += 1
        return str.__eq__(self, other)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        Counted.looks += 1
        return str.__hash__(self)


@pytest.mark.parametrize("twice", ["first", "last"])
def test_a_key_that_stands_twice_is_found_in_one_pass(twice: str) -> None:
    count = 2000
    keys = [f"{number:05x}" for number in range(count)]
    pairs = [(Counted(key), 0) for key in [*keys, keys[0] if twice == "first" else keys[-1]]]
    Counted.looks = 0
    with pytest.raises(DuplicateKey, match=keys[0] if twice == "first" else keys[-1]):
        distinct_keys(pairs)
    assert Counted.looks < 12 * count


def test_the_longest_message_of_keys_is_refused_whether_or_not_one_stands_twice() -> None:
    keys = [f'"{number:05x}":0' for number in range(MAX_BYTES // 10 - 10)]
    for more, words in (([], "values"), (['"00000":1'], "twice"), ([keys[-1]], "twice")):
        text = "{" + ",".join([*keys, *more]) + "}"
        assert MAX_BYTES * 0.9 < len(text) <= MAX_BYTES
        with pytest.raises(BadMessage, match=words):
            parse_object(text)


MANY = {"lists": "[]", "objects": "{}", "numbers": "0", "strings": '""'}


@pytest.mark.parametrize("kind", MANY)
def test_a_message_has_so_many_values_and_no_more(kind: str) -> None:
    def message(count: int) -> str:
        return '{"data":{"deeper":[' + ",".join([MANY[kind]] * count) + "]}}"

    with pytest.raises(BadMessage, match=r"10,000 values"):
        parse_object(message(MAX_VALUES))
    assert len(parse_object(message(MAX_VALUES // 2))["data"]["deeper"]) == MAX_VALUES // 2


def test_the_longest_honest_message_is_read() -> None:
    guess = {"op": "guess", "response": "\U0001f5fa" * 50_000, "reasoning": "ß" * 20_000}
    assert parse_object(json.dumps({"type": "step", "data": guess}))["data"] == guess
