"""Commit statuses on a forge that runs here: in order, told again until they are heard, and never in the way of a build (B8)."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from holdfast.builds.project import Secret, StatusSettings
from holdfast.clock import MovableClock
from tests.builds.making import Repository
from tests.builds.yard import FAILING, Yard

pytestmark = pytest.mark.claim("B8")
STEPS = '[steps.one]\nrun = ["true"]\n[steps.two]\nafter = ["one"]\nrun = ["true"]\n[steps.quiet]\nhidden = true\nrun = ["true"]\n'


class Forge:
    """What a forge's API was told; `answers` says what it says to each, 201 when it has no more."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.paths: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self.answers: list[int] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = outer.answers.pop(0) if outer.answers else 201
                outer.paths.append(self.path)
                outer.tokens.add(self.headers["Authorization"])
                if status == 201:
                    outer.heard.append((body["context"], body["state"]))
                    outer.bodies.append(body)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"{outer.url}/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, context: str) -> list[str]:
        return [state for heard, state in self.heard if heard == context]


@pytest.fixture
def forge() -> Iterator[Forge]:
    made = Forge()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def here(yard: Callable[..., Yard], forge: Forge) -> Yard:
    return yard(status=StatusSettings("github", forge.url, "me/demo", Secret("TOKEN")))


def test_the_build_and_its_steps_are_told_in_order(here: Yard, forge: Forge, repository: Repository) -> None:
    commit = repository.commit(STEPS)
    here.build(commit)
    assert forge.of("holdfast/demo") == ["pending", "pending", "success"]
    assert forge.of("holdfast/demo/one")[-1] == forge.of("holdfast/demo/two")[-1] == "success"
    assert forge.of("holdfast/demo/one")[0] == "pending"
    assert forge.of("holdfast/demo/quiet") == [], "it is hidden"
    assert forge.heard[0] == ("holdfast/demo", "pending")
    assert forge.heard[-1] == ("holdfast/demo", "success")
    assert set(forge.paths) == {f"/repos/me/demo/statuses/{commit}"}
    assert forge.tokens == {"Bearer t0ken"}


def test_a_failure_is_told_as_one(here: Yard, forge: Forge, repository: Repository) -> None:
    here.build(repository.commit(FAILING))
    assert (forge.of("holdfast/demo")[-1], forge.of("holdfast/demo/test")[-1]) == ("failure", "failure")


def test_no_secret_of_the_builder_is_in_a_status(here: Yard, forge: Forge, repository: Repository) -> None:
    build = here.build(repository.commit('[steps.test]\nrun = ["exit 3 # t0ken and s3cret"]\n'))
    assert "test: exited with 3: exit 3 # *** and ***" in str(build.error)
    assert "exited with 3: exit 3 # *** and ***" in [body["description"] for body in forge.bodies]
    assert "exited with 3: exit 3 # *** and ***" in here.log(build)


def test_an_abort_before_a_builder_began_is_told(here: Yard, forge: Forge, repository: Repository) -> None:
    here.projects.abort(here.ask(repository.commit(STEPS)).build.id)
    here.app.run_until_idle()
    assert forge.of("holdfast/demo") == ["pending", "error"]


def test_a_forge_that_is_down_hears_everything_later_and_the_build_is_not_touched(
    here: Yard, forge: Forge, repository: Repository, clock: MovableClock
) -> None:
    forge.answers = [500, 503, 429]
    build = here.build(repository.commit(STEPS))
    assert build.outcome == "success"
    for _ in range(5):
        clock.advance(1000)
        here.app.run_until_idle()
    assert forge.of("holdfast/demo") == ["pending", "pending", "success"]
    assert forge.of("holdfast/demo/one")[-1] == "success"


def test_a_forge_that_will_not_hear_is_not_asked_again(here: Yard, forge: Forge, repository: Repository) -> None:
    forge.answers = [404] * 100
    assert here.build(repository.commit(STEPS)).outcome == "success"
    assert forge.heard == []
    assert here.app.store.tell_untold() == 0
    (job,) = here.app.find(job_type="build_status", limit=1)
    assert job.outcome == "success"


def test_a_redirect_does_not_take_the_token_along(here: Yard, forge: Forge, repository: Repository) -> None:
    forge.answers = [302] * 100
    assert here.build(repository.commit(STEPS)).outcome == "success"
    assert "/elsewhere" not in forge.paths


def test_a_result_is_reported_again_to_who_asks_again(here: Yard, forge: Forge, repository: Repository) -> None:
    commit = repository.commit(STEPS)
    here.build(commit)
    forge.heard.clear()
    here.build(commit)
    assert forge.heard == [
        ("holdfast/demo/one", "success"),
        ("holdfast/demo/two", "success"),
        ("holdfast/demo", "success"),
    ]


def test_a_missing_token_stops_nothing(yard: Callable[..., Yard], forge: Forge, repository: Repository) -> None:
    here = yard(status=StatusSettings("github", forge.url, "me/demo", Secret("NOT_SET")))
    assert here.build(repository.commit(STEPS)).outcome == "success"
    assert forge.paths == []


def test_an_untrusted_build_reports_only_until_a_trusted_one_of_the_commit_does(
    here: Yard, forge: Forge, repository: Repository
) -> None:
    """Else a pull request of another repository could turn a commit of this one green."""
    commit = repository.commit(FAILING)
    strange = {"stranger": True, "pull_request": 5, "branch": "evil"}
    here.ask(commit, **strange)
    here.app.run_until_idle()
    assert forge.of("holdfast/demo") == ["pending", "pending", "failure"]
    here.build(commit)
    assert forge.of("holdfast/demo")[3:] == ["pending", "pending", "failure"]
    heard = len(forge.heard)
    again = here.ask(commit, **strange)
    assert (again.how, again.build.trusted) == ("reported", False)
    here.projects.retry(again.build.id)
    here.app.run_until_idle()
    assert len(forge.heard) == heard


def test_a_result_that_another_branch_gets_is_reported_for_that_branch(
    yard: Callable[..., Yard], forge: Forge, repository: Repository
) -> None:
    here = yard(status=StatusSettings("generic", forge.url, "", Secret("TOKEN")))
    commit = repository.commit(STEPS)
    first = here.ask(commit, branch="feature", ref="refs/heads/feature").build
    here.app.run_until_idle()
    assert {body["branch"] for body in forge.bodies} == {"feature"}
    forge.bodies.clear()
    for wanted, branch in (({}, "main"), ({"branch": None, "tag": "v1", "ref": "refs/tags/v1"}, None)):
        assert here.ask(commit, **wanted).build.id == first.id
        here.app.run_until_idle()
        assert {(body["build"], body["branch"]) for body in forge.bodies} == {(first.id, branch)}
        assert forge.bodies[-1]["state"] == "success"
        forge.bodies.clear()
