"""A stand-in for the Hugging Face Hub on this machine: the endpoints that push and fetch use."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_the_stand_in"


@dataclass
class Repository:
    """Commits by id, each all files by name; branches point to commits."""

    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        everything = self.commits.get(self.branches.get(branch, ""), {}) | files
        seed = repr((len(self.commits), sorted(everything))).encode()
        oid = hashlib.sha1(seed).hexdigest()
        self.commits[oid] = everything
        self.branches[branch] = oid
        return oid

    def find(self, revision: str) -> str | None:
        oid = self.branches.get(revision, revision)
        return oid if oid in self.commits else None


@dataclass
class FakeHub:
    """Where it listens, what it holds, and what was asked."""

    endpoint: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    hub = FakeHub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if path == "/api/repos/create" and allowed:
            self._create(json.loads(body))
            return
        if path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
            return
        routes = (
            (r"/api/models/([^/]+/[^/]+)/(revision|tree|preupload|commit|branch)/([^/]+)", True),
            (r"/api/models/([^/]+/[^/]+)", True),
            (r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", False),
        )
        for pattern, api in routes:
            found = re.fullmatch(pattern, path)
            if found is None:
                continue
            repository = self.hub.repositories.get(found[1])
            if repository is None or (repository.private and not allowed):
                self._refuse(404 if allowed else 401, "RepoNotFound", "Repository Not Found")
            elif api:
                verb, revision = (*found.groups()[1:], "revision", "main")[:2]
                if len(found.groups()) == 1:
                    verb, revision = "revision", "main"
                self._api(repository, found[1], verb, revision, body)
            else:
                self._file(repository, found[2], found[3])
            return
        self._refuse(401 if not allowed else 404, "Unknown", f"no endpoint {path}")

    def _create(self, asked: dict[str, Any]) -> None:
        owner = asked.get("organization") or "me"
        name = f"{owner}/{asked['name']}"
        if name in self.hub.repositories:
            told = {"error": "You already created this model repo"}
            self._json(told | {"url": f"{self.hub.endpoint}/{name}"}, 409)
            return
        private = asked.get("private") or asked.get("visibility") == "private"
        self.hub.repositories[name] = Repository(bool(private))
        self.hub.repositories[name].commit("main", {".gitattributes": b""})
        self._json({"url": f"{self.hub.endpoint}/{name}", "name": name})

    def _api(
        self, repository: Repository, name: str, verb: str, revision: str, body: bytes
    ) -> None:
        if verb == "branch":
            repository.branches.setdefault(revision, repository.branches["main"])
            self._json({"url": f"{self.hub.endpoint}/{name}/tree/{revision}"})
            return
        oid = repository.find(revision)
        if oid is None:
            self._refuse(404, "RevisionNotFound", "Revision Not Found")
            return
        files = repository.commits[oid]
        if verb == "preupload":
            asked = json.loads(body)["files"]
            how = {"uploadMode": "regular", "shouldIgnore": False}
            self._json({"files": [{"path": file["path"], **how} for file in asked]})
        elif verb == "commit":
            lines = [json.loads(line) for line in body.splitlines()]
            added = {
                line["value"]["path"]: base64.b64decode(line["value"]["content"])
                for line in lines
                if line["key"] == "file"
            }
            made = repository.commit(revision, added)
            url = f"{self.hub.endpoint}/{name}/commit/{made}"
            self._json({"success": True, "commitOid": made, "commitUrl": url, "hookOutput": ""})
        elif verb == "tree":
            entries = [
                {"type": "file", "path": path, "size": len(content), "oid": _digest(content)}
                for path, content in files.items()
            ]
            self._json(entries)
        else:
            siblings = [{"rfilename": path} for path in files]
            self._json(
                {"id": name, "sha": oid, "private": repository.private, "siblings": siblings}
            )

    def _file(self, repository: Repository, revision: str, path: str) -> None:
        oid = repository.find(revision)
        if oid is None:
            self._refuse(404, "RevisionNotFound", "Revision Not Found")
            return
        if path not in repository.commits[oid]:
            self._refuse(404, "EntryNotFound", "Entry Not Found", {"X-Repo-Commit": oid})
            return
        content = repository.commits[oid][path]
        self._send(200, content, {"ETag": f'"{_digest(content)}"', "X-Repo-Commit": oid}, "binary")

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), {}, "application/json")

    def _refuse(
        self, status: int, code: str, text: str, headers: dict[str, str] | None = None
    ) -> None:
        more = {"X-Error-Code": code, "X-Error-Message": text} | (headers or {})
        self._send(status, json.dumps({"error": text}).encode(), more, "application/json")

    def _send(self, status: int, content: bytes, headers: dict[str, str], kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
