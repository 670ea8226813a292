"""E4: the archive keeps jobs for ever, or for as long as it is told; then they go with everything that is kept about them."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from holdfast import App, Invalid, NotFound, current_job
from holdfast.clock import MovableClock
from holdfast.errors import HoldfastError
from holdfast.stores.contract import ArchivePage, Filter, Store
from tests.by_hand import WorkerByHand, add
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("E4")
DAY = 86400.0
BESIDE = ("attempt", "audit", "log")


def end_on(store: Store, clock: MovableClock, *days: str) -> list[int]:
    """A job for each day, with an attempt that failed, a retry by hand and a line in its log; all archived."""
    worker, ids = WorkerByHand(store), []
    for day in days:
        clock.set(datetime.fromisoformat(day).replace(tzinfo=UTC))
        job = add(store, retries=0)
        worker.fail(worker.claim_one())
        store._audit("ann", "looked", job=job.id)  # type: ignore[attr-defined]
        ids.append(job.id)
    clock.advance(1)
    store.archive(0)
    return ids


def forget_all(store: Store, seconds: float, **more: int) -> int:
    total = 0
    while lot := store.forget(seconds, **more):
        total += lot
    return total


def kept(store: Store) -> list[int]:
    return [job.id for job in reversed(store.find(Filter(archive=True)))]


def test_what_ended_longer_ago_goes_with_all_that_is_kept_about_it(
    store: Store, sql: RawSql, clock: MovableClock
) -> None:
    january, february, march = end_on(store, clock, "2026-01-10", "2026-02-28T23:59:59", "2026-03-01")
    living = add(store)
    sql(
        "insert into {log} (job, id, time, attempt, level, text, total) "
        "select job, 1, end_time, 1, 'INFO', 'said', 1 from {attempt}"
    )
    clock.set(datetime(2026, 4, 1, tzinfo=UTC))

    assert forget_all(store, 31 * DAY) == 2

    assert kept(store) == [march, living.id]
    assert len(store.history(march)) == 4
    for job_id in (january, february):
        for ask in (store.get, store.history, store.attempts):
            with pytest.raises(NotFound):
                ask(job_id)
    for name in BESIDE:
        assert [row["job"] for row in sql(f"select job from {{{name}}}")] == [march]


def test_a_month_that_is_not_over_stays_whole_where_months_are_dropped(
    store: Store, sql: RawSql, clock: MovableClock
) -> None:
    early, late = end_on(store, clock, "2026-01-02", "2026-01-30")
    clock.set(datetime(2026, 1, 31, tzinfo=UTC))

    assert forget_all(store, 7 * DAY) == (0 if sql.postgres else 1)

    assert kept(store) == ([early, late] if sql.postgres else [late])


def test_letting_go_is_dropping_a_table(store: Store, sql: RawSql, clock: MovableClock) -> None:
    """And a month's table can come again: a job may be archived late."""
    if not sql.postgres:
        pytest.skip("there the archive is one table")
    months = "select relname from pg_class where relkind = 'r' and relname like :name order by 1"
    end_on(store, clock, "2026-01-02", "2026-02-02")
    clock.set(datetime(2026, 6, 1, tzinfo=UTC))
    assert forget_all(store, DAY) == 2
    for kind in ("archive", "forgotten"):
        assert sql(months, name=f"{sql.instance}__{kind}_2026%") == []

    (again,) = end_on(store, clock, "2026-01-03")
    assert kept(store) == [again]


def test_many_are_let_go_of_in_lots_and_an_interruption_loses_nothing(
    store: Store, sql: RawSql, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_on(store, clock, *[f"2026-01-{day:02}" for day in range(1, 8)])
    (february,) = end_on(store, clock, "2026-02-01")
    clock.set(datetime(2026, 3, 1, tzinfo=UTC))
    assert store.forget(28 * DAY, limit=3) == 3
    assert sql.value("select count(*) from {attempt}") == 5

    def broken(before: datetime, limit: int) -> int:
        real(before, limit)
        raise HoldfastError("pulled the plug")

    real = store.let_go  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(store, "let_go", broken)
        with pytest.raises(HoldfastError, match="pulled the plug"):
            store.forget(28 * DAY, limit=3)
    assert sql.value("select count(*) from {attempt}") == 5
    assert store.forget(28 * DAY, limit=3) == 3
    forget_all(store.another(5), 28 * DAY, limit=3)  # another process goes on

    assert kept(store) == [february]
    assert [row["job"] for row in sql("select job from {attempt} union select job from {audit}")] == [february]


def test_no_living_job_is_ever_let_go_of(store: Store, sql: RawSql, clock: MovableClock) -> None:
    """Nor one that ended and is not archived yet."""
    worker = WorkerByHand(store)
    add(store)
    worker.fail(worker.claim_one())
    waits, ended = add(store, delay=1e8), add(store)
    worker.succeed(worker.claim_one())
    before = sql.value("select count(*) from {attempt}")
    clock.advance(1e7)

    assert forget_all(store, 0) == 0

    assert len(kept(store)) == 3
    assert (store.get(waits.id).state, store.get(ended.id).outcome) == ("initial", "success")
    assert sql.value("select count(*) from {attempt}") == before


def test_an_app_keeps_for_ever_unless_it_is_told(app: Callable[..., App], clock: MovableClock, sql: RawSql) -> None:
    for_ever = app(archive_after=60)

    @for_ever.queue("mail").job
    def send() -> str:
        current_job().log("sending")
        return "sent"

    clock.set(datetime(2026, 1, 31, tzinfo=UTC))
    job = send.enqueue()
    for_ever.run_until_idle()
    for _ in range(2):
        clock.advance(365 * DAY)
        for_ever.run_until_idle()
    assert (job.refresh().archived, for_ever.archive_keep) == (True, None)

    app(archive_after=60, archive_keep=90 * DAY).run_until_idle()

    with pytest.raises(NotFound):
        job.refresh()
    assert for_ever.find(archive=True) == []
    assert sql("select * from {log}") == []


@pytest.mark.parametrize("settings", [{"archive_keep": 3600}, {"archive_keep": -1}, {"archive_after": 0}])
def test_settings_that_would_let_go_too_early_are_refused(app: Callable[..., App], settings: dict[str, float]) -> None:
    with pytest.raises(Invalid, match=next(iter(settings))):
        app(**settings)


@pytest.mark.parametrize("name", ["archive_after", "archive_keep"])
def test_a_time_that_leads_out_of_the_calendar_is_refused(app: Callable[..., App], name: str) -> None:
    with pytest.raises(Invalid, match=f"{name}=1000000000000.0; .* a thousand years"):
        app(**{name: 1e12})


def test_the_environment_sets_both(app: Callable[..., App], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_ARCHIVE_AFTER", "60")
    monkeypatch.setenv("HOLDFAST_ARCHIVE_KEEP", "120")
    assert (app().archive_after, app().archive_keep) == (60, 120)
    assert app(archive_after=100, archive_keep=200).archive_keep == 200


def test_the_archive_is_read_page_by_page(store: Store, clock: MovableClock) -> None:
    ids = end_on(store, clock, "2026-01-01", "2026-02-01", "2026-01-02", "2026-03-01")
    found, page = [], ArchivePage(limit=3)
    while jobs := store.archived(page):
        found.append([job.id for job in jobs])
        page = ArchivePage(limit=3, after=jobs[-1].id)
    assert found == [ids[:3], ids[3:]]
    day = datetime(2026, 1, 2, tzinfo=UTC)
    assert [job.id for job in store.archived(ArchivePage(since=day))] == ids[1:]
    assert [job.id for job in store.archived(ArchivePage(until=day))] == ids[:1]
    assert store.archived(ArchivePage(job_type="print")) == []
    assert len(store.archived(ArchivePage("send", "mail"))) == 4
    for job in store.archived(ArchivePage()):
        assert store.attempts_of([job])[job.id] == store.attempts(job.id)


@pytest.mark.parametrize(("name", "table"), [("old_ended", "ended"), ("old_archived", "archive")])
def test_what_is_old_is_found_without_scanning(store: Store, sql: RawSql, name: str, table: str) -> None:
    if sql.postgres and name == "old_archived":
        pytest.skip("there whole months are dropped")
    text, asked = store.text(name), {"before": datetime(2026, 1, 1, tzinfo=UTC), "limit": 10}  # type: ignore[attr-defined]
    if sql.postgres:
        with sql.transaction() as connection:
            connection.execute("set local enable_seqscan = off")
            connection.execute("set local enable_sort = off")
            plan = "\n".join(row[0] for row in connection.execute("explain " + text, asked))
    else:
        rows = sql.connection.execute("explain query plan " + text, {"before": 1, "limit": 10})
        plan = "\n".join(row[3] for row in rows)
    assert "end_time" in plan
    assert "Sort" not in plan and "SCAN" not in plan and "Seq Scan" not in plan, plan  # noqa: PT018
