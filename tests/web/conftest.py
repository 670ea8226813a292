"""An app that is served in this process, and clients of it: a program with a token, a browser with a session, a stranger."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from holdfast import WAIT, App, Failed
from holdfast.builds.build import QUEUE, STATUS_QUEUE
from holdfast.clock import MovableClock
from holdfast.stores.contract import NewToken
from holdfast.web import auth, secret
from holdfast.web.app import create
from tests.cli.terminal import Call, called_here
from tests.conftest import Preparation, with_queues
from tests.web.furnished import Furnished

ADDRESS = "http://localhost:8765"
Client = TestClient[Any]


@pytest.fixture(scope="session")
def preparation() -> Preparation:
    return with_queues("mail", "slow", "workflows", QUEUE, STATUS_QUEUE)


@pytest.fixture
def shop(app: Callable[..., App]) -> App:
    """Jobs that succeed, fail, wait and are throttled; a workflow; a schedule."""
    made = app()
    mail = made.queue("mail")
    made.queue("slow", throttle_limit=1)

    @mail.job()
    def send(to: str, subject: str = "hi") -> str:
        return f"{subject} {to}"

    @mail.job(retries=0)
    def refuse(why: str) -> None:
        raise Failed(why)

    @mail.job()
    def ask() -> Any:
        return WAIT

    report = made.workflow("report")

    @report.step()
    def prepare(task: Any) -> None: ...

    @report.step(after=["prepare"], shards=2)
    def count(task: Any) -> None: ...

    made.schedule("nightly", cron="0 3 * * *", zone="UTC", job=send, payload={"to": "all"})
    return made


@pytest.fixture
def furnished(shop: App, clock: MovableClock, tmp_path: Path) -> Furnished:
    """The shop, with something of everything in it."""
    return Furnished(shop, clock, tmp_path / "yard")


@pytest.fixture
def stranger(shop: App, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Somebody without anything."""
    builds = "furnished" in request.fixturenames
    projects = request.getfixturevalue("furnished").yard.projects if builds else None
    with TestClient(create(shop, projects=projects), base_url=ADDRESS) as client:
        yield client


def token(app: App, scope: str = "admin", name: str = "tests", lasts: timedelta | None = None) -> str:
    made = secret.new()
    app.store.add_token(NewToken(name=name, hash=secret.hashed(made), scope=scope, lasts=lasts), "tests")
    return made


@pytest.fixture
def client(shop: App, stranger: Client) -> Client:
    """A program that may do everything."""
    stranger.headers["Authorization"] = f"Bearer {token(shop)}"
    return stranger


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    return called_here(monkeypatch, tmp_path, capsys)


class Browser:
    """A session, and the CSRF token of its pages."""

    def __init__(self, client: Client, app: App) -> None:
        answer = client.get(f"/login?token={auth.make_login(app)}", follow_redirects=False)
        assert answer.status_code == 303
        self.client = client
        self.csrf_token = secret.csrf_token(client.cookies["holdfast_session_8765"])


@pytest.fixture
def browser(shop: App, stranger: Client) -> Browser:
    return Browser(stranger, shop)
