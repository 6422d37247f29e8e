"""A service on loopback answers only to its own names."""

import socket

import pytest

from labelgrove.errors import ConfigError
from labelgrove.serve.hosts import allowed_hosts
from support.services import check_problem, running

pytestmark = pytest.mark.slow
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
    bodies = {
        "feedback": b'{"text": "x", "labels": ["red"]}',
        "predict": b'{"texts": ["x"]}',
    }
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
