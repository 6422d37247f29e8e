"""Single connections at their limits, and who may ask; tests/attack sends the masses."""

import logging
import re
import resource
import socket
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from labelgrove.errors import ConfigError
from labelgrove.serve import protocol
from labelgrove.serve.metrics import Metrics
from labelgrove.serve.protocol import ConnectionLimits, allow_descriptors
from labelgrove.serve.request_limits import allowed_hosts
from labelgrove.serve.settings import ServeParams
from support.served_process import HANG, wait_for
from support.services import check_problem, running

pytestmark = pytest.mark.slow
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@contextmanager
def connected(client, data):
    address = (client.base_url.host, client.base_url.port)
    with socket.create_connection(address, timeout=HANG) as connection:
        connection.sendall(data)
        yield connection


def status(connection):
    """The status of one answer, which is read to its end."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        assert piece, received
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head)[1])
    while len(body) < length:
        body += connection.recv(65536)
    assert len(body) == length  # one answer and no more
    return int(head.split()[1])


def connections(client):
    text = client.get("/metrics").text
    return float(re.search(r"^labelgrove_open_connections (\S+)$", text, re.MULTILINE)[1])


def test_headers_are_counted_to_the_byte(model_path):
    with running(model_path, max_header_bytes=1000, max_headers=10) as client:

        def ask(size):
            # The address, and names and values with four more bytes each.
            padding = size - len("/healthz") - len("HostxX") - 8
            with connected(client, GET[:-2] + b"X: %s\r\n\r\n" % (b"a" * padding)) as connection:
                return status(connection)

        assert ask(1000) == 200
        assert ask(1001) == 431
        for count, expected in ((10, 200), (11, 431)):
            with connected(client, GET[:-2] + b"X: a\r\n" * (count - 1) + b"\r\n") as connection:
                assert status(connection) == expected


def test_headers_of_one_request_do_not_count_for_the_next(model_path):
    with running(model_path, max_header_bytes=256) as client, connected(client, b"") as connection:
        for _ in range(50):
            connection.sendall(GET[:-2] + b"X: %s\r\n\r\n" % (b"a" * 150))
            assert status(connection) == 200


def test_a_connection_survives_a_body_that_was_refused(model_path):
    with running(model_path, max_body=1000) as client, connected(client, b"") as connection:
        for _ in range(3):
            connection.sendall(POST + b"Content-Length: 2000000\r\n\r\n")
            assert status(connection) == 413  # before the body was sent
            connection.sendall(b" " * 2_000_000)
            connection.sendall(GET)
            assert status(connection) == 200


def test_a_body_is_not_asked_for_if_it_is_too_large(model_path):
    head = POST + b"Content-Length: 5000\r\nExpect: 100-continue\r\n\r\n"
    with running(model_path, max_body=1000) as client, connected(client, head) as connection:
        assert status(connection) == 413


def test_a_refused_body_without_end_is_cut_off(model_path, monkeypatch):
    monkeypatch.setattr(protocol, "DRAIN_BYTES", 1_000_000)
    endless = POST + b"Content-Length: 999999999\r\n\r\n"
    with running(model_path) as client, connected(client, endless) as connection:
        assert status(connection) == 413
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                connection.sendall(b" " * 1_000_000)
        assert connections(client) == 1


def test_a_refused_body_that_trickles_in_is_cut_off(model_path, monkeypatch):
    monkeypatch.setattr(protocol, "DRAIN_SECONDS", 0.5)
    head = POST + b"Content-Length: 999999999\r\n\r\n"
    with running(model_path) as client, connected(client, head) as connection:
        assert status(connection) == 413

        def is_cut_off():
            try:
                connection.sendall(b" ")
            except ConnectionError:
                return True
            return False

        wait_for(is_cut_off)


@pytest.mark.parametrize("closing", [b"", b"Connection: close\r\n"])
def test_a_refused_client_that_does_nothing_is_cut_off(model_path, monkeypatch, closing):
    monkeypatch.setattr(protocol, "DRAIN_SECONDS", 0.1)
    monkeypatch.setattr(protocol, "STILL_SECONDS", 0.1)
    waiting = POST + closing + b"Content-Length: 999999999\r\n\r\n"
    with running(model_path) as client, connected(client, waiting) as connection:
        assert status(connection) == 413
        assert connection.recv(1) == b""
        wait_for(lambda: connections(client) == 1)


def test_an_idle_connection_is_closed_also_after_an_early_answer(model_path):
    head = GET.replace(b"GET", b"POST")[:-2] + b"Content-Length: 4\r\n\r\n"
    with running(model_path, max_header_seconds=2) as client, connected(client, head) as connection:
        assert status(connection) == 405
        connection.sendall(b"body")
        assert connection.recv(1) == b""


def test_stopping_does_not_wait_for_half_a_request(model_path, monkeypatch):
    monkeypatch.setattr(protocol, "DRAIN_SECONDS", HANG)
    monkeypatch.setattr(protocol, "STILL_SECONDS", HANG)
    limits = {"max_header_seconds": HANG, "max_seconds": HANG}
    with running(model_path, **limits) as client:
        half = connected(client, GET[:20])
        half.__enter__()
        wait_for(lambda: connections(client) == 2)
        started = time.monotonic()
    half.__exit__(None, None, None)
    assert time.monotonic() - started < HANG / 2


def limits(total=4, each=2):
    return ConnectionLimits(
        ServeParams(max_connections=total, max_connections_per_address=each), Metrics()
    )


def test_one_address_cannot_take_all_connections():
    connections = limits()
    assert [connections.enter("192.0.2.1") is None for _ in range(4)] == [True, True, False, False]
    assert connections.enter("192.0.2.2") is None and connections.enter(None) is None
    problem = connections.enter("192.0.2.3")
    assert problem is not None and "4 open connections" in problem.detail
    assert problem.status == 503 and problem.headers["Retry-After"] == "1"
    connections.leave("192.0.2.1")
    assert connections.enter("192.0.2.3") is None
    assert "labelgrove_open_connections 4.0\n" in connections.metrics.text()


def test_hosts_with_many_ipv6_addresses_count_once():
    connections = limits()
    assert connections.enter("2001:db8::1") is None and connections.enter("2001:db8::2") is None
    assert connections.enter("2001:db8::ffff:3") is not None
    assert connections.enter("2001:db8:0:1::1") is None


def test_addresses_that_left_are_forgotten():
    connections = limits()
    for number in range(100):
        assert connections.enter(f"192.0.2.{number}") is None
        connections.leave(f"192.0.2.{number}")
    assert not connections._addresses


def test_open_files_are_counted():
    before = protocol._open_descriptors()
    with Path("/dev/null").open("rb"):
        assert protocol._open_descriptors() == before + 1


def test_few_descriptors_lower_the_limit(monkeypatch, caplog):
    monkeypatch.setattr(protocol, "_open_descriptors", lambda: 20)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 256))
    with caplog.at_level(logging.WARNING):
        connections = limits(total=1024, each=256)
    assert connections.limit == 256 - 20 - protocol.REFUSED - protocol.SPARE
    assert connections.limit_per_address == connections.limit // 4
    assert "ulimit -n" in caplog.text


def test_the_soft_limit_is_raised_as_far_as_needed(monkeypatch):
    descriptors = {"now": (256, 4096)}
    monkeypatch.setattr(protocol, "_open_descriptors", lambda: 20)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: descriptors["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, new: descriptors.update(now=new))
    allow_descriptors(1024)
    assert 1024 < descriptors["now"][0] < 2048 and descriptors["now"][1] == 4096
    assert limits(total=1024).limit == 1024
    allow_descriptors(100)
    assert descriptors["now"][0] > 1024  # never lowered
    allow_descriptors(100_000)
    assert descriptors["now"] == (4096, 4096)


ODD = ("[::1]evil.com", "[::1]evil.com:8000", "[::1]:evil.com", "localhost:80:80")


@pytest.fixture(scope="module")
def kept(model_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    with running(model_path, feedback=folder) as client:
        client.file = folder / "model.jsonl"
        yield client


@pytest.mark.parametrize("bound", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_loopback_answers_to_its_own_names(bound):
    own = {"localhost", "127.0.0.1", "[::1]", f"[{bound}]" if ":" in bound else bound}
    assert set(allowed_hosts(bound) or ()) == own
    assert set(allowed_hosts(bound, ["Proxy.Example.org"]) or ()) == own | {"proxy.example.org"}
    assert allowed_hosts(bound, ["x.example.org", "*"]) is None


@pytest.mark.parametrize("bound", ["0.0.0.0", "::", "192.0.2.1", "labels.example.org"])
def test_elsewhere_any_name_goes_unless_some_are_given(bound):
    assert allowed_hosts(bound) is None
    assert allowed_hosts(bound, ["labels.example.org:8000"]) == ["labels.example.org"]


@pytest.mark.parametrize("name", ["", "http://x", "a b", "*.example.org", "grün.example"])
def test_names_that_are_none_are_refused(name):
    with pytest.raises(ConfigError, match="--host-header"):
        allowed_hosts("127.0.0.1", [name])


def test_other_names_are_refused_before_anything_is_told(model_path):
    with running(model_path, hosts=allowed_hosts("127.0.0.1")) as client:
        for good in ("localhost", "LOCALHOST:1234", "127.0.0.1:8000", "[::1]:80", "localhost."):
            assert client.get("/v1/model", headers={"host": good}).status_code == 200
        for bad in (
            "evil.example",
            "localhost.evil.example:8000",
            "127.0.0.1.evil.example",
            "",
            *ODD,
        ):
            for route in ("/v1/model", "/", "/metrics", "/openapi.json", "/page/main.js"):
                response = client.get(route, headers={"host": bad})
                problem = check_problem(response, 421, "wrong-host")
            assert "--host-header" in problem["detail"]
            # Probes of containers use addresses that nobody knows before.
            assert client.get("/healthz", headers={"host": bad}).status_code == 200
        address = (client.base_url.host, client.base_url.port)
        for hosts in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
            with socket.create_connection(address, timeout=240) as connection:
                connection.sendall(b"GET /v1/model HTTP/1.1\r\n" + hosts + b"\r\n")
                assert connection.recv(1000).startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),  # a program
        ({"origin": "http://{host}"}, 200),  # the page itself
        ({"origin": "https://labels.example.org", "sec-fetch-site": "same-origin"}, 200),  # a proxy
        ({"content-type": "application/problem+json; charset=utf-8"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://{host}.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": None}, 422),
        ({"content-type": ""}, 422),
        ({"content-type": "text/plain"}, 422),
        ({"content-type": "text/plain; application/json"}, 422),
        ({"content-type": "application/x-www-form-urlencoded"}, 422),
        ({"content-type": None, "origin": "http://evil.example"}, 403),
    ],
)
def test_other_sites_cannot_send_anything(kept, headers, status):
    host = f"{kept.base_url.host}:{kept.base_url.port}"
    sent = {"content-type": "application/json"} | headers
    given = {name: value.format(host=host) for name, value in sent.items() if value is not None}
    bodies = {"feedback": b'{"text": "x", "labels": ["red"]}', "predict": b'{"texts": ["x"]}'}
    for route, body in bodies.items():
        for base in ("/v1", "/v1/models/model"):
            before = kept.file.read_bytes()
            answer = kept.post(f"{base}/{route}", content=body, headers=given)
            assert answer.status_code == status, answer.text
            grows = status == 200 and route == "feedback"
            assert (kept.file.read_bytes() != before) == grows
    assert kept.options("/v1/feedback", headers=given).status_code == 405  # nor may they ask


def test_no_answer_may_be_read_as_another_kind(model_path):
    with running(model_path, token="abc") as client:
        for route in ("/v1/model", "/healthz", "/nothing", "/", "/page/main.js"):
            answer = client.get(route)
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
