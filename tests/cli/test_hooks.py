"""`holdfast hooks send`: what the server answers goes to standard output, what it refuses to standard error."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.builds.making import Repository
from tests.builds.yard import QUICK
from tests.cli.conftest import Call
from tests.cli.terminal import Answer

Send = Callable[..., Answer]


@pytest.fixture
def send(cli: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Send]:
    """Calls the command; a server answers with this status and body."""
    monkeypatch.setenv("HOOK", "s3cret")
    repository, answer = Repository(tmp_path / "repository"), dict[str, Any]()
    repository.commit(QUICK)

    class Forge(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(answer["status"])
            self.end_headers()
            self.wfile.write(json.dumps(answer["body"]).encode())

        def log_message(self, *about: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Forge) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def send(status: int, body: dict[str, Any], *options: str) -> Answer:
            answer.update(status=status, body=body)
            to = f"http://127.0.0.1:{server.server_port}"
            given = ("--repo", str(repository.path), "--secret-env", "HOOK", "--to", to, *options)
            return cli("hooks", "send", "github", "demo", *given)

        yield send
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize(("status", "code"), [(409, 4), (401, 1), (404, 3), (503, 5)])
def test_a_refusal_is_one_paragraph_on_standard_error(send: Send, status: int, code: int, options: tuple[str]) -> None:
    answer = send(status, {"detail": "Delivery `d`\nhas come before."}, *options)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err == f"Error: Refused with {status}: Delivery `d` has come before.\n"


def test_what_was_taken_is_on_standard_output(send: Send) -> None:
    assert send(200, {"pong": True}).out == "Taken, pong: True.\n"
    answer = send(200, {"ignored": "not this branch"}, "--json")
    assert (answer.code, answer.json, answer.err) == (0, {"ignored": "not this branch"}, "")
