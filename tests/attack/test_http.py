"""Slow and rude clients against a real server process on loopback.

Each attack is a short form of one that stopped or bloated the service. No limit here is a
measurement: deadlines only end a hang, and memory may grow by far less than what is sent.
"""

import os
import socket
import struct
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

import httpx

from support.served_process import HANG, is_ready, serving, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc"),
]
SETTINGS = ("max_header_seconds=3", "max_connections_per_address=40", "max_seconds=8")
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def answer(connection):
    """Everything that comes until the server closes."""
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


def send_until_refused(connection, piece, total):
    """Sends until the server stops reading, as a client does that does not listen meanwhile."""
    sent = 0
    with suppress(ConnectionError):
        while sent < total:
            connection.sendall(piece)
            sent += len(piece)
    return sent


LINES = b"".join(b"X-%06d: %s\r\n" % (number, b"a" * 40) for number in range(1000))


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n", LINES, id="many lines"),
        pytest.param(b"GET / HTTP/1.1\r\nX: ", b"a" * 50_000, id="one long value"),
        pytest.param(b"GET / HTTP/1.1\r\n", b"a" * 50_000, id="one long name"),
        pytest.param(b"GET /", b"a" * 50_000, id="a long address"),
        pytest.param(b"", b"\r\n" * 25_000, id="empty lines"),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", LINES, id="trailers"
        ),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;", b"a" * 50_000, id="chunk extension"
        ),
    ],
)
def test_sixty_megabytes_of_headers(server, beginning, piece):
    before = server.peak()
    with server.connect(beginning) as connection:
        send_until_refused(connection, piece, 60_000_000)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        received = answer(connection)
    assert received.startswith(b"HTTP/1.1 431 "), received
    assert b'"headers-too-large"' in received and b"\r\nconnection: close\r\n" in received
    print(f"peak: {before:.0f} MB before, {server.peak():.0f} MB after")
    assert server.peak() < before + 60
    server.works()


def test_half_sent_headers_are_given_up(server):
    with server.connect(b"GET /v1/model HTTP/1.1\r\nHost: local") as connection:
        received = answer(connection)
    assert received.startswith(b"HTTP/1.1 408 ") and b'"slow-headers"' in received
    # Also after a complete request over the same connection.
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.connect(whole) as connection:
        first = connection.recv(65536)
        assert first.startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /healthz HT")
        assert b"HTTP/1.1 408 " in answer(connection)
    # And with the beginning of the second request right behind the first.
    with server.connect(whole + b"GET /healthz HT") as connection:
        received = answer(connection)
        assert received.startswith(b"HTTP/1.1 200 ") and b"HTTP/1.1 408 " in received


def test_a_byte_now_and_then_does_not_keep_a_connection(server):
    with server.connect() as connection, suppress(ConnectionError):
        connection.settimeout(0.2)
        deadline = time.monotonic() + HANG
        received = b""
        text = iter(b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000)
        while True:
            assert time.monotonic() < deadline
            connection.sendall(bytes([next(text)]))
            with suppress(TimeoutError):
                received = connection.recv(65536)
                break
        assert received.startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_says_nothing_is_closed_without_a_word(server):
    with server.connect() as connection:
        assert answer(connection) == b""


def test_many_connections_of_one_address(model):
    settings = (f"max_header_seconds={HANG}", "max_connections_per_address=40")
    with serving(model, *settings) as server, ExitStack() as stack:
        mine = [stack.enter_context(server.connect()) for _ in range(39)]
        wait_for(lambda: server.metric("open_connections") == 40)
        refusals = []
        for _ in range(100):
            connection = stack.enter_context(server.connect(HEAD))
            with suppress(ConnectionError):
                refusals.append(connection.recv(65536))
        # The first can read why; when many of them stay, the others are closed at once.
        refusals = [refusal for refusal in refusals if refusal]
        assert 20 < len(refusals) < 100
        assert all(b"HTTP/1.1 503 " in refusal for refusal in refusals)
        assert all(b'"too-many-connections"' in refusal for refusal in refusals)
        mine[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert mine[0].recv(65536).startswith(b"HTTP/1.1 200 ")
        server.works()  # over the connection that it had
        stack.pop_all().close()
        wait_for(lambda: server.metric("open_connections") == 1)


def test_descriptors_are_never_used_up(model):
    settings = ("max_connections=9999", "max_connections_per_address=9999", "max_header_seconds=1")
    with serving(model, *settings, files=250) as server, ExitStack() as stack:
        for _ in range(600):
            with suppress(ConnectionError):
                stack.enter_context(server.connect(b"GET / HTTP/1.1\r\nX: "))
        fresh = httpx.Client(base_url=server.client.base_url, timeout=HANG)
        stack.enter_context(fresh)
        wait_for(lambda: is_ready(fresh), server.process)
        print(f"log: {server.log.stat().st_size} bytes")
        assert server.log.stat().st_size < 20_000
        assert "ulimit -n" in server.log.read_text()


def test_garbage_behind_a_request(server):
    body = b'{"texts": ["hat"], "k": 1}'
    whole = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    for garbage in (b"\0\1\2 garbage\r\n\r\n", os.urandom(4000) + b"\r\n\r\n", b"GET\r\n" * 999):
        with server.connect(whole + garbage) as connection:
            received = answer(connection)
        # The request before it gets its own answer.
        assert received.startswith(b"HTTP/1.1 200 "), received
        with server.connect(garbage) as connection:
            received = answer(connection)
        assert received.startswith(b"HTTP/1.1 400 ") and b'"invalid-http"' in received
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with server.connect(whole * 50 + last) as connection:
        assert answer(connection).count(b"HTTP/1.1 200 ") == 51


def test_bad_requests_do_not_fill_the_log(server):
    before, started = server.log.stat().st_size, time.monotonic()
    for _ in range(500):
        with server.connect(b"garbage\r\n\r\n") as connection:
            answer(connection)
    seconds = time.monotonic() - started
    assert server.log.stat().st_size - before < 300 * (seconds + 2)


def test_resets_in_the_middle_of_a_body(server):
    for _ in range(200):
        connection = server.connect(HEAD + b"Content-Length: 4000000\r\n\r\n" + b" " * 100_000)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    wait_for(lambda: server.metric("open_requests") == 1)  # the one for the metrics
    wait_for(lambda: server.metric("open_connections") == 1)


def test_bodies_that_stop_half_way(server):
    for path in (b"/v1/predict", b"/healthz"):  # a route that reads the body, one that does not
        head = HEAD.replace(b"/v1/predict", path)
        with server.connect(head + b"Content-Length: 100\r\n\r\n{") as connection:
            received = answer(connection)
        assert received.startswith(b"HTTP/1.1 408 " if b"predict" in path else b"HTTP/1.1 405 ")


def test_a_client_that_does_not_read_its_answers(server):
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    before = server.peak()
    with server.connect(buffer=4096) as connection:
        connection.settimeout(1)
        with suppress(TimeoutError, ConnectionError):
            connection.sendall(request * 20_000)
        wait_for(lambda: server.metric("open_connections") == 1)
    assert server.peak() < before + 60


@pytest.mark.parametrize("closing", [b"", b"Connection: close\r\n"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_refusal_can_be_read_by_clients_that_send_first(server, closing, chunked):
    size = 30_000_000
    before = server.peak()
    if chunked:
        head = HEAD + closing + b"Transfer-Encoding: chunked\r\n\r\n"
        body = (b"186a0\r\n" + b" " * 100_000 + b"\r\n") * (size // 100_000) + b"0\r\n\r\n"
    else:
        head = HEAD + closing + b"Content-Length: %d\r\n\r\n" % size
        body = b" " * size
    with server.connect(head) as connection:
        connection.sendall(body)  # it does not listen before all is sent
        connection.shutdown(socket.SHUT_WR)
        received = answer(connection)
    assert received.startswith(b"HTTP/1.1 413 ") and b'"too-large"' in received
    assert server.peak() < before + 60
