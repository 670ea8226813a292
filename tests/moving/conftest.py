"""Two databases, mostly of different kinds, there and back, and an app that has something of everything in the first."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from holdfast import App
from holdfast.clock import MovableClock
from holdfast.stores.moving import Move, open_side
from tests.conftest import INSTANCE, Preparation, with_queues
from tests.moving.shop import FILL_LASTS, Filled, fill, find_filled, make_shop
from tests.prepared import Prepared
from tests.raw_sql import RawSql

SHOP = with_queues("mail", "calls", "quota", "routines", "workflows")


class Way(Struct, frozen=True):
    """Where an instance is, and where it is to go."""

    source: str
    target: str
    instance: str


def filled_shop(url: str) -> None:
    """Something of everything is made once, and copied for each test that asks for it."""
    SHOP(url)
    clock = MovableClock()
    with make_shop(url, INSTANCE, clock) as app:
        app.store.queues()
        sql = RawSql(url, INSTANCE)
        fill(app, sql, clock)
        sql.close()


@pytest.fixture(params=["to postgres", "to sqlite"])
def way(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    prepared: Prepared,
    prepared_files: Callable[[Preparation], Path],
    instance: str,
    clock: MovableClock,
) -> Iterator[Way]:
    """`to another file` and `to another server` are for a test that asks for them."""
    file, other_file = (f"sqlite:///{tmp_path}/{name}.db" for name in ("jobs", "other"))
    is_filled = "filled" in request.fixturenames
    if is_filled:
        clock.advance(FILL_LASTS)
    kinds: dict[str, tuple[str | None, str | None]] = {
        "to postgres": (file, None),
        "to sqlite": (None, file),
        "to another file": (file, other_file),
        "to another server": (None, None),
    }
    source, target = kinds[request.param]
    if is_filled and source:
        shutil.copyfile(prepared_files(filled_shop), tmp_path / "jobs.db")
    way = Way(source or prepared.copy_of(filled_shop if is_filled else SHOP), target or prepared.new(), instance)
    yield way
    for side in (way.source, way.target):
        if side.startswith("postgresql"):
            prepared.drop(side)


@pytest.fixture
def shop(way: Way, clock: MovableClock) -> Iterator[App]:
    """An app in the source, opened before anybody thinks of moving."""
    with make_shop(way.source, way.instance, clock) as app:
        app.store.queues()
        yield app


@pytest.fixture
def filled(shop: App) -> Filled:
    """The shop has something of everything; `way` has brought it."""
    return find_filled(shop)


@pytest.fixture
def branch(way: Way, clock: MovableClock) -> Iterator[App]:
    """The same app in the target; it connects when it is first used."""
    with make_shop(way.target, way.instance, clock) as app:
        yield app


@pytest.fixture
def moving(way: Way, clock: MovableClock) -> Iterator[Callable[..., Move]]:
    """Makes moves; each is a program of its own."""
    opened: list[Any] = []

    def make(grace: float = 0.0, source: str = way.source, target: str = way.target) -> Move:
        while opened:
            opened.pop().close()
        for url in (source, target):
            opened.append(open_side(url, way.instance, clock))
        return Move(*opened, grace)

    yield make
    for side in opened:
        side.close()


@pytest.fixture
def here(way: Way, shop: App) -> Iterator[RawSql]:
    """Plain SQL in the source."""
    sql = RawSql(way.source, way.instance)
    yield sql
    sql.close()


@pytest.fixture
def there(way: Way) -> Iterator[RawSql]:
    """Plain SQL in the target."""
    if way.target.startswith("sqlite"):
        open_side(way.target, way.instance, MovableClock()).close()  # makes the file
    sql = RawSql(way.target, way.instance)
    yield sql
    sql.close()
