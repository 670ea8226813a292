"""A database for each test, with an instance that an app has set up, and the command line called in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App, Failed
from holdfast.clock import Clock
from holdfast.stores.open import open_store
from tests.cli.terminal import Call, called_here
from tests.prepared import Prepared


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of its own: which instances it has matters here."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    prepared: Prepared = request.getfixturevalue("prepared")
    made = prepared.copy_of(with_shop) if "shop" in request.fixturenames else prepared.new()
    yield made
    prepared.drop(made)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """For what does not hang on the store."""
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def shop(url: str) -> Iterator[App]:
    """Instance `shop` of the database, with jobs of three kinds that can be run."""
    with make_shop(url) as app:
        yield app


def with_shop(url: str) -> None:
    make_shop(url).close()


def make_shop(url: str, name: str = "shop") -> App:
    app = App(url, name=name)
    mail = app.queue("mail")

    @mail.job(retries=0)
    def send(to: str, subject: str = "hi") -> str:
        return f"{subject} {to}"

    @mail.job(retries=0)
    def break_(text: str = "broken") -> None:
        raise ValueError(text)

    @mail.job(retries=0)
    def fail() -> None:
        raise Failed("as expected")

    app.store.queues()  # the first operation sets the instance up
    return app


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    return called_here(monkeypatch, tmp_path, capsys)


def instances(url: str) -> list[str]:
    """What stands in the database."""
    store = open_store(url, "holdfast", Clock())
    try:
        return list(store.instances())
    finally:
        store.close()
