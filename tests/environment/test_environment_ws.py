"""/ws on a real server: protocol, bad input, capacity, stalls, vanished peers."""

import json
import socket
import threading

import pytest
import websockets
from environment_lab import Server, ask, until
from fuzzing import fuzz_ws
from websockets.sync.client import ClientConnection

LOOK = {"type": "step", "data": {"op": "look", "heading_deg": 10}}
NAP = {"type": "step", "data": {"op": "nap", "seconds": 1.5}}


def test_an_episode_in_openenvs_protocol(ws: ClientConnection) -> None:
    first = ask(ws, {"type": "reset", "data": {"split": "eval", "index": 2, "episode_id": "e-1"}})
    assert (
        first["type"] == "observation" and first["data"]["reward"] is None and first["data"]["done"] is False
    )
    assert first["data"]["metadata"] == first["data"]["observation"]["metadata"]
    assert not {"reward", "done"} & set(first["data"]["observation"])
    state = ask(ws, {"type": "state"})
    assert (
        state["type"] == "state" and state["data"]["task_index"] == 2 and state["data"]["episode_id"] == "e-1"
    )
    assert ask(ws, LOOK)["data"]["observation"]["steps_remaining"] == 11
    last = ask(ws, {"type": "step", "data": {"op": "guess", "lat": 35.6586, "lon": 139.7454}})["data"]
    assert last["done"] and last["reward"] > 0.98 and last["observation"]["distance_km"] < 1
    refused = ask(ws, LOOK)
    assert refused["type"] == "error" and refused["data"]["code"] == "EPISODE_DONE"
    assert ask(ws, {"type": "state"})["data"]["step_count"] == 2
    assert ask(ws, {"type": "reset"})["type"] == "observation"
    ws.send(json.dumps({"type": "close"}))
    with pytest.raises(websockets.ConnectionClosed):
        ws.recv(5)


# What it is -> frame, and the error it must get: a code, or None where it is play and spends a turn.
BAD: dict[str, tuple[str | bytes, str | None]] = {
    "array": ("[]", "INVALID_JSON"),
    "string": ('"x"', "INVALID_JSON"),
    "binary": (b"\x00\x01", "INVALID_JSON"),
    "torn": ('{"type":', "INVALID_JSON"),
    "deep list": ('{"type":"step","data":' + "[" * 50_000 + "]" * 50_000 + "}", "INVALID_JSON"),
    "deep object": ('{"type":"step","data":{"a":' + '{"a":' * 900 + "1" + "}" * 902, "INVALID_JSON"),
    "NaN": ('{"type":"step","data":{"op":"look","heading_deg":NaN}}', "INVALID_JSON"),
    "Infinity": ('{"type":"step","data":{"op":"look","heading_deg":-Infinity}}', "INVALID_JSON"),
    "1e999": ('{"type":"step","data":{"op":"look","heading_deg":1e999}}', "INVALID_JSON"),
    "5000 digits": ('{"type":"step","data":{"op":"look","heading_deg":' + "9" * 5000 + "}}", "INVALID_JSON"),
    "a key twice": ('{"type":"step","data":{"op":"guess","op":"list_pins"}}', "INVALID_JSON"),
    "type twice": ('{"type":"step","type":"reset","data":{"op":"list_pins"}}', "INVALID_JSON"),
    "half a surrogate": ('{"type":"step","data":{"op":"\\ud800"}}', "INVALID_JSON"),
    "10 MB label": (
        json.dumps({"type": "step", "data": {"op": "pin", "lat": 1, "lon": 1, "label": "x" * 10_000_000}}),
        "FRAME_TOO_LARGE",
    ),
    "no type": ("{}", "UNKNOWN_TYPE"),
    "unknown type": ('{"type":"zap"}', "UNKNOWN_TYPE"),
    "type is a list": ('{"type":["step"]}', "UNKNOWN_TYPE"),
    "data is a list": ('{"type":"step","data":[]}', "VALIDATION_ERROR"),
    "no data": ('{"type":"step"}', "VALIDATION_ERROR"),
    "surplus key": ('{"type":"step","data":{"op":"list_pins"},"x":1}', "VALIDATION_ERROR"),
    "no such split": ('{"type":"reset","data":{"split":"nope"}}', "BAD_SELECTION"),
    "reset of a stranger": ('{"type":"reset","data":{"index":10000000000000000000000}}', "BAD_SELECTION"),
    "reset with a self": ('{"type":"reset","data":{"self":1,"session":2}}', "BAD_SELECTION"),
    "unknown op": ('{"type":"step","data":{"op":"fly"}}', None),
    "op of another kind": ('{"type":"step","data":{"op":{"look":1}}}', None),
    "no op": ('{"type":"step","data":{"heading_deg":1}}', None),
    "field of another op": ('{"type":"step","data":{"op":"look","heading_deg":1,"lat":1}}', None),
    "missing field": ('{"type":"step","data":{"op":"look"}}', None),
    "+1e308": ('{"type":"step","data":{"op":"look","heading_deg":1e308}}', None),
    "-1e308": ('{"type":"step","data":{"op":"pin","lat":-1e308,"lon":0,"label":"x"}}', None),
    "4000 digits": ('{"type":"step","data":{"op":"look","heading_deg":' + "9" * 4000 + "}}", None),
    "lat 91": ('{"type":"step","data":{"op":"guess","lat":91,"lon":0}}', None),
    "lat true": ('{"type":"step","data":{"op":"pin","lat":true,"lon":0,"label":"x"}}', None),
    "lat in a string": ('{"type":"step","data":{"op":"guess","lat":"1","lon":0}}', None),
    "NaN in a string": ('{"type":"step","data":{"op":"look","heading_deg":"nan"}}', None),
    "long label": (
        json.dumps({"type": "step", "data": {"op": "pin", "lat": 1, "lon": 1, "label": "x" * 300}}),
        None,
    ),
    "unicode op": ('{"type":"step","data":{"op":"\u202e\U0001f5fa\ufe0f\\u0000"}}', None),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_a_typed_answer_on_that_session(server: Server, name: str) -> None:
    frame, code = BAD[name]
    with server.connect() as bystander, server.connect() as ws:
        ask(bystander, {"type": "reset", "data": {"index": 1}})
        ask(ws, {"type": "reset", "data": {"index": 0}})
        answer = ask(ws, frame)
        state = ask(ws, {"type": "state"})["data"]
        assert not state["done"] and state["action_cost"] == 0
        if code is None:
            assert answer["type"] == "observation" and state["step_count"] == 1
            assert "Not a valid action" in answer["data"]["observation"]["feedback"]
        else:
            assert answer["type"] == "error" and answer["data"]["code"] == code and state["step_count"] == 0
            assert len(json.dumps(answer)) < 400
        assert ask(ws, LOOK)["type"] == "observation"
        assert ask(bystander, LOOK)["data"]["observation"]["steps_remaining"] == 11


def test_a_unicode_label_comes_back_as_it_was(ws: ClientConnection) -> None:
    label = "Ōsaka \U0001f5fa \u202e\u0000 ‮"
    ask(ws, {"type": "reset"})
    pins = ask(ws, {"type": "step", "data": {"op": "pin", "lat": 34.7, "lon": 135.5, "label": label}})
    assert pins["data"]["observation"]["pins"][0]["label"] == label


def test_hundreds_of_fuzzed_frames(server: Server) -> None:
    fuzz_ws(server, 400, seed=1)


def test_one_more_than_the_cap_is_refused_by_name(lab: Server) -> None:
    until(lambda: lab.metric("geo_sessions") == 0)
    with lab.connect() as one, lab.connect() as two:
        assert ask(one, {"type": "reset"})["type"] == ask(two, {"type": "reset"})["type"] == "observation"
        for speaks_first in (True, False):
            with lab.connect() as third:
                refusal = ask(third, {"type": "reset"}) if speaks_first else json.loads(third.recv(10))
                assert refusal["data"]["code"] == "CAPACITY_REACHED" and refusal["data"]["max_sessions"] == 2
                with pytest.raises(websockets.ConnectionClosed) as closed:
                    third.recv(10)
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1013
    until(lambda: lab.metric("geo_sessions") == 0)
    with lab.connect() as again:
        assert ask(again, {"type": "reset"})["type"] == "observation"


def test_a_stall_in_one_session_does_not_hold_up_another(lab: Server) -> None:
    until(lambda: lab.metric("geo_sessions") == 0)
    with lab.connect() as slow, lab.connect() as quick:
        ask(slow, {"type": "reset"})
        ask(quick, {"type": "reset"})
        slow.send(json.dumps(NAP))
        answered = [ask(quick, LOOK)["data"]["observation"]["steps_remaining"] for _ in range(10)]
        assert answered == list(range(11, 1, -1))
        with pytest.raises(TimeoutError):
            slow.recv(0)
        assert json.loads(slow.recv(10))["data"]["observation"]["feedback"] == "awake"


def test_a_hung_step_ends_its_session_and_frees_the_slot(lab: Server) -> None:
    until(lambda: lab.metric("geo_sessions") == 0)
    with lab.connect() as hung:
        ask(hung, {"type": "reset"})
        answer = ask(hung, {"type": "step", "data": {"op": "nap", "seconds": 1e6}})
        assert answer["data"]["code"] == "STEP_TIMEOUT"
        assert lab.metric("geo_sessions") == 0
        with pytest.raises(websockets.ConnectionClosed):
            hung.recv(5)


def test_a_bug_in_a_tool_is_an_error_without_its_words(lab: Server) -> None:
    with lab.connect() as ws:
        ask(ws, {"type": "reset"})
        answer = ask(ws, {"type": "step", "data": {"op": "stumble"}})
        assert answer["data"]["code"] == "EXECUTION_ERROR" and "48.8584" not in json.dumps(answer)
        assert ask(ws, {"type": "state"})["data"]["step_count"] == 0
        assert ask(ws, LOOK)["type"] == "observation"


def test_an_idle_session_is_ended_and_pays_nothing_afterwards(lab: Server) -> None:
    with lab.connect() as ws:
        ask(ws, {"type": "reset"})
        assert json.loads(ws.recv(60))["data"]["code"] == "SESSION_EXPIRED"
        with pytest.raises(websockets.ConnectionClosed) as closed:
            ask(ws, LOOK)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4408
    with lab.connect() as ws:
        assert ask(ws, LOOK)["data"]["code"] == "NOT_RESET"


def test_a_socket_cut_in_the_middle_of_a_step_frees_its_slot(lab: Server) -> None:
    until(lambda: lab.metric("geo_sessions") == 0)
    with lab.connect() as bystander:
        ask(bystander, {"type": "reset"})
        ws = lab.connect()
        ask(ws, {"type": "reset"})
        ws.send(json.dumps({"type": "step", "data": {"op": "nap", "seconds": 0.5}}))
        ws.socket.shutdown(socket.SHUT_RDWR)
        until(lambda: lab.metric("geo_sessions") == 1, 5)
        assert ask(bystander, LOOK)["type"] == "observation"
    assert "Traceback" not in lab.log.read_text().replace("a bug at", "").split("RuntimeError")[-1]


def test_a_half_open_socket_frees_its_slot(server: Server) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    held = server.metric("geo_sessions")
    mute = socket.create_connection(("127.0.0.1", port))
    mute.sendall(
        f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    assert b"101" in mute.recv(4096)
    until(lambda: server.metric("geo_sessions") == held + 1, 5)
    until(lambda: server.metric("geo_sessions") == held, 15)
    mute.close()


def test_no_compression_is_negotiated(server: Server) -> None:
    offer = websockets.sync.client.connect(server.ws_url, proxy=None)
    with offer:
        assert offer.response is not None and "Sec-WebSocket-Extensions" not in offer.response.headers


def test_sessions_on_many_threads_do_not_mix(server: Server) -> None:
    seen: dict[int, set[str]] = {}

    def play(index: int) -> None:
        with server.connect() as ws:
            pictures = set()
            for _ in range(3):
                first = ask(ws, {"type": "reset", "data": {"index": index}})
                pictures.add(first["data"]["observation"]["image_base64"])
                ask(ws, LOOK)
            seen[index] = pictures

    threads = [threading.Thread(target=play, args=(index,)) for index in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(seen[index]) for index in range(5)] == [1] * 5
    assert len(set.union(*seen.values())) == 5
