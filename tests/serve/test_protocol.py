"""Single connections at their limits; tests/attack sends the masses."""

import re
import socket
import time
from contextlib import contextmanager

import pytest

from labelgrove.serve import protocol
from support.served_process import HANG, wait_for
from support.services import running

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


def test_a_client_that_sends_before_it_listens_can_read_its_refusal(model_path):
    head = POST + b"Connection: close\r\nContent-Length: 30000000\r\n\r\n"
    with running(model_path) as client, connected(client, head) as connection:
        connection.sendall(b" " * 30_000_000)
        assert status(connection) == 413


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
    with (
        running(model_path, max_header_seconds=2) as client,
        connected(client, head) as connection,
    ):
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


def test_an_answer_that_nobody_reads_is_given_up(model_path):
    class Transport:
        aborted = False
        unread = 500_000

        def get_write_buffer_size(self):
            return self.unread

        def abort(self):
            self.aborted = True

    class Loop:
        def call_later(self, seconds, action, *given):
            self.seconds, self.action, self.given = seconds, action, given
            return self

        def cancel(self):
            self.action = None

        def pass_time(self):
            self.action(*self.given)

    one = protocol.GuardedProtocol.__new__(protocol.GuardedProtocol)
    one.transport, one.loop = transport, loop = Transport(), Loop()
    one.flow = protocol_flow(transport)
    one._unread_timer = None
    one._limits = type("Limits", (), {"max_seconds": 9.0})()
    one.pause_writing()
    assert loop.seconds == 9.0
    transport.unread -= protocol.LEAST_READ
    loop.pass_time()
    assert not transport.aborted
    transport.unread -= protocol.LEAST_READ - 1
    loop.pass_time()
    assert transport.aborted
    one.resume_writing()
    assert loop.action is None


def protocol_flow(transport):
    from uvicorn.protocols.http.flow_control import FlowControl

    return FlowControl(transport)
