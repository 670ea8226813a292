"""What every test of the stores stands on: both databases, a clock that is moved by hand, and Apps that are closed again.

- `url` runs a test once on SQLite and once on PostgreSQL; the file or database is its own.
- Their files are kept in memory where there is room for them; of tests that pass nothing is left.
- What is marked `long` begins first, on every process of a run.
- `instance` is set up already, with what the folder's `preparation` has declared in it, and watched (`tests.watching`).
"""

import gc
import itertools
import os
import shutil
import string
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from holdfast import App
from holdfast.clock import MovableClock
from holdfast.stores.contract import QueueDeclared, Store, TypeRow
from holdfast.stores.open import open_store
from holdfast.testing import Rehearsal
from tests import in_memory
from tests.postgres_on_demand import Guard, server_in
from tests.postgres_server import Server
from tests.prepared import Prepared
from tests.raw_sql import RawSql
from tests.watching import watch

pytest_plugins = ["tests.faults.report"]
GUARD = pytest.StashKey[Guard]()
FOLDER = "holdfast_postgres"
HERE = Path(__file__).parent
INSTANCE = "tests"
Preparation = Callable[[str], None]
settings.register_profile("holdfast", deadline=None)  # a machine may be slow
settings.load_profile("holdfast")
names = ("t" + "".join(letters) for letters in itertools.product(string.ascii_lowercase, repeat=4))


@pytest.hookimpl(tryfirst=True)  # before pytest decides where `tmp_path` is
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "broken_on_purpose: leaves a database behind that breaks the invariants")
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(in_memory.folder()))
        config.stash[GUARD] = Guard()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist: tell each worker process where the run's PostgreSQL is."""
    node.workerinput[FOLDER] = str(node.config.stash[GUARD].folder)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each worker process begins to import at another place: what one has compiled, the others need not compile again."""
    told = getattr(session.config, "workerinput", None)
    if told is None or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    files = sorted(
        path for path in HERE.rglob("test_*.py") if path.relative_to(HERE).parts[0] not in ("browser", "faults")
    )
    begin = len(files) * int(told["workerid"].removeprefix("gw")) // told["workercount"]
    for path in files[begin:] + files[:begin]:
        with suppress(Exception, pytest.skip.Exception):  # it is told when the file is collected
            import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))


@pytest.hookimpl(trylast=True)  # of what is left when others have taken out what is not to run
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is long begins each process's share: at the end of a run one process would be busy with it and the others idle."""
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    long = [item for item in items if item.get_closest_marker("long")]
    short = iter([item for item in items if not item.get_closest_marker("long")])
    total = len(items)
    items.clear()
    for process in range(count):
        share = (total - len(items)) // (count - process)  # as pytest-xdist cuts them
        dealt = long[process::count]
        items.extend(dealt)
        items.extend(itertools.islice(short, share - len(dealt)))


def pytest_unconfigure(config: pytest.Config) -> None:
    if GUARD in config.stash:
        config.stash[GUARD].close()


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Server:
    """The PostgreSQL server of this run."""
    told = getattr(pytestconfig, "workerinput", None)
    return server_in(Path(told[FOLDER]) if told else pytestconfig.stash[GUARD].folder)


@pytest.fixture(scope="session")
def prepared(postgres: Server) -> Iterator[Prepared]:
    made = Prepared(postgres)
    yield made
    made.close()


@pytest.fixture(scope="session")
def preparation() -> Preparation:
    """What every test of a folder finds; it may be redefined there."""
    return with_queues()


def with_queues(*names: str) -> Preparation:
    """An instance with these queues."""

    def prepare(url: str) -> None:
        store = open_store(url, INSTANCE, MovableClock())
        store.set_up()
        store.register([QueueDeclared(name, f"{INSTANCE}_{name}") for name in names], ())
        store.close()
        watch(url, INSTANCE)

    return prepare


@pytest.fixture(scope="session")
def prepared_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Preparation], Path]:
    """For SQLite: what is prepared is prepared once, and copied for each test."""

    @cache
    def prepare(preparation: Preparation) -> Path:
        path = tmp_path_factory.mktemp("prepared") / "jobs.db"
        preparation(f"sqlite:///{path}")
        return path

    return prepare


@pytest.fixture
def postgres_url(prepared: Prepared, preparation: Preparation) -> Iterator[str]:
    url = prepared.copy_of(preparation)
    yield url
    prepared.drop(url)


@pytest.fixture(params=["sqlite", "postgres"])
def url(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    preparation: Preparation,
    prepared_files: Callable[[Preparation], Path],
) -> str:
    """A database: each test runs on both."""
    if request.param == "sqlite":
        shutil.copyfile(prepared_files(preparation), tmp_path / "jobs.db")
        return f"sqlite:///{tmp_path}/jobs.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def instance() -> str:
    return INSTANCE


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def app(url: str, instance: str, clock: MovableClock, rehearse: Callable[..., Rehearsal]) -> Callable[..., App]:
    """Makes Apps on this test's database and instance; each call is a program of its own."""

    def make(name: str = instance, **settings: Any) -> App:
        where, time = settings.pop("db_config", url), settings.pop("clock", clock)
        return rehearse(App(where, name=name, **settings), where, name=name, clock=time).app

    return make


@pytest.fixture
def store(url: str, instance: str, clock: MovableClock) -> Iterator[Store]:
    """An opened store whose instance has a queue `mail` with the job types `send` and `print`."""
    opened = open_store(url, instance, clock)
    opened.set_up()
    types = [TypeRow(job_type=name, queue="mail", has_handler=True) for name in ("send", "print")]
    opened.register([QueueDeclared("mail", f"{instance}_mail")], types)
    yield opened
    opened.close()


@pytest.fixture
def sql(url: str, instance: str, request: pytest.FixtureRequest) -> Iterator[RawSql]:
    """Plain SQL on this test's database, past Holdfast."""
    if "store" in request.fixturenames:
        request.getfixturevalue("store")
    opened = RawSql(url, instance)
    yield opened
    opened.close()


def pytest_collection_finish() -> None:
    """What is there now stays: nobody need look through thousands of tests again and again for what is garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
