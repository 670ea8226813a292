"""The stream of a build: the moves of its job and of its steps, then each as it comes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from holdfast import App
from holdfast.web.app import create
from holdfast.web.live import Event
from holdfast.web.topics import BuildTopic
from tests.builds.making import Repository
from tests.builds.yard import Yard
from tests.web.conftest import ADDRESS, token
from tests.web.test_events import read

pytestmark = pytest.mark.claim("E3")

FILE = """
[steps.compile]
run = ["true"]
[steps.test]
after = ["compile"]
run = ["exit 3"]
[steps.never]
after = ["test"]
run = ["true"]
"""
MOVES = [
    ("job", None, "initial"),
    ("job", "initial", "running"),
    ("compile", "DORMANT", "READY"),
    ("compile", "READY", "SUCCESS"),
    ("test", "DORMANT", "READY"),
    ("test", "READY", "FAILED"),
    ("never", "DORMANT", "SKIP_BY_FAILED"),
    ("job", "running", "error"),
    ("job", "error", "final"),
]


@pytest.fixture
def yard(app: Callable[..., App], tmp_path: Path) -> Yard:
    (tmp_path / "yard").mkdir()
    return Yard(app(), tmp_path / "yard", Repository(tmp_path / "repository"))


def told(events: list[Event]) -> list[dict[str, Any]]:
    return [read(event.encode()) for event in events]


def moves(events: list[dict[str, Any]]) -> list[tuple[str, str | None, str]]:
    found = (e["data"] for e in events if e["event"] in ("move", "step"))
    return [(each.get("step", "job"), each["from_state"], each.get("to_state") or each["state"]) for each in found]


def test_a_build_that_is_over_is_told_by_its_moves_and_its_stream_ends(yard: Yard) -> None:
    build = yard.build(yard.repository.commit(FILE))
    with TestClient(create(yard.app, projects=yard.projects), base_url=ADDRESS) as client:
        client.headers["Authorization"] = f"Bearer {token(yard.app)}"
        answer = client.get(f"/api/v1/builds/{build.id}/events")
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [read(part.encode()) for part in answer.text.strip().split("\n\n")[1:]]
        assert moves(events) == MOVES
        assert [e["event"] for e in events[-2:]] == ["build", "end"]
        assert events[-1]["data"]["outcome"] == "failed"
        assert client.get("/api/v1/builds/99999/events").status_code == 404


def test_a_build_is_followed_from_its_beginning_to_its_end(yard: Yard) -> None:
    build = yard.ask(yard.repository.commit(FILE)).build
    store, topic = yard.app.store, BuildTopic(build.id, 10)
    topic.look(store)
    first = told(topic.since(None, store))
    assert [e["event"] for e in first] == ["move", "build"]
    assert topic.look(store) == []
    yard.app.run_until_idle()
    rest = told(topic.look(store))
    assert moves([*first, *rest]) == MOVES
    assert told(topic.since(first[-1]["id"], store)) == rest
    assert topic.over


def test_a_build_that_is_built_again_is_told_by_its_new_job(yard: Yard) -> None:
    build = yard.build(yard.repository.commit(FILE))
    store, topic = yard.app.store, BuildTopic(build.id, 10)
    topic.look(store)
    known = topic.since(None, store)[-1].id
    assert topic.since(known, store) == []
    again = yard.projects.retry(build.id)
    assert moves(told(topic.look(store))) == MOVES[:1]
    yard.app.run_until_idle()
    assert moves(told(topic.look(store))) == MOVES[1:]
    other = BuildTopic(build.id, 10)
    other.look(store)
    replayed = told(other.since(known, store))
    assert replayed[0]["event"] == "reset"
    assert moves(replayed) == MOVES
    assert replayed[-1]["data"]["job_id"] == again.job_id
