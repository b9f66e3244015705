"""A planted token and a planted signature are searched for wherever a client leaves text."""

import copy
import logging
import pickle
import traceback
from typing import Any

import pytest

from env_service.errors import GeoError
from resources._mapillary_transport import Secret
from resources.mapillary import MapillaryClient, TokenRefused

TOKEN = "MLY|planted|s3cr3t-T0ken/+="
NEEDLES = ("s3cr3t-T0ken", "signature-of-link")


def leaks(text: str) -> list[str]:
    return [needle for needle in NEEDLES if needle in text]


def whole(error: BaseException) -> str:
    """Everything that hangs on an exception: texts, causes, contexts, attributes."""
    seen, parts = set(), []
    queue: list[BaseException | None] = [error]
    while queue:
        each = queue.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        parts += [str(each), repr(each), repr(each.args), repr(vars(each))]
        parts.append("".join(traceback.format_exception(each)))
        queue += [each.__cause__, each.__context__]
    return "\n".join(parts)


def echo(path: str) -> Any:
    """A server that quotes the request in its refusal, as some proxies do."""
    return 400, {}, f"cannot serve {path} for {TOKEN}".encode()


def graph_echo(path: str) -> Any:
    return 401, {}, {"error": {"message": f"Invalid token {TOKEN} in {path}", "code": 190}}


@pytest.mark.parametrize(
    "answer",
    [
        echo,
        graph_echo,
        (500, {}, b""),
        (403, {}, b""),
        (429, {}, b""),
        (200, {}, b"<html>signature-of-link</html>"),
        (200, {"Content-Length": "999"}, b"\x1a"),
        (302, {"Location": "/elsewhere?access_token=s3cr3t-T0ken"}, b""),
    ],
)
def test_no_error_no_log_and_no_pickle_of_an_error_holds_them(
    answer: Any, scripted: Any, client_for: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = client_for(scripted.url, TOKEN, attempts=2)
    scripted.say(answer)
    link = f"{scripted.url}/img/1.jpg?oe=1&oh=signature-of-link"
    failed = 0
    with caplog.at_level(logging.DEBUG):
        for question in (
            lambda: client.tile(6, 1, 2),
            lambda: client.image("12"),
            lambda: client.image_ids("s"),
            lambda: client.images_in_bbox(0, 0, 0.001, 0.001),
            lambda: client.download(link),
        ):
            try:
                question()
            except GeoError as error:
                failed += 1
                assert not leaks(whole(error))
                assert not leaks(repr(pickle.dumps(error)))
                assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert failed >= 4
    assert scripted.seen
    texts = [record.getMessage() + repr(record.args) for record in caplog.records]
    assert any("access_token=" in text for text in texts), "the connection log was not looked at"
    assert not leaks("\n".join(texts))


def test_errors_without_any_answer_hold_nothing(client_for: Any) -> None:
    for address in ("http://127.0.0.1:9", "nonsense", "ftp://127.0.0.1/"):
        with pytest.raises(GeoError) as caught:
            client_for(address, TOKEN, attempts=2).tile(6, 1, 2)
        assert caught.value.__context__ is None and caught.value.__cause__ is None
        assert not leaks(whole(caught.value))


def test_no_representation_and_no_state_holds_it(client_for: Any) -> None:
    client = client_for("http://127.0.0.1:9", TOKEN)
    texts = [repr(client), str(client), f"{client!r}", repr(vars(client)), repr(vars(client._asker))]
    texts.append(repr(pickle.dumps(client)))
    assert not leaks("\n".join(texts))


def test_a_copy_needs_its_token_again(scripted: Any, client_for: Any) -> None:
    client = client_for(scripted.url, TOKEN, requests_per_minute=6000)
    scripted.say((200, {}, {"id": "12"}))
    for copied in (pickle.loads(pickle.dumps(client)), copy.deepcopy(client)):
        assert isinstance(copied, MapillaryClient)
        with pytest.raises(TokenRefused, match="no Mapillary access token"):
            copied.image("12")
        assert copied.with_token(TOKEN).image("12") == {"id": "12"}


def test_redaction_finds_every_spelling_and_spares_the_rest() -> None:
    secret = Secret(TOKEN)
    for text in (TOKEN, "MLY%7Cplanted%7Cs3cr3t-T0ken%2F%2B%3D", f"x?access_token={TOKEN}&y=1"):
        assert not leaks(secret.redact(f"said {text} to us"))
    assert secret.redact("OAuth abc, and plain words") == "OAuth [secret] and plain words"
    assert Secret("").redact("plain words") == "plain words"
