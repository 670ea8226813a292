"""Q7: payloads are JSON, checked when they are enqueued and converted back when they run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import apsw
import msgspec
import pytest

from holdfast import App, Failed, Invalid, Job, JobError, Retry, current_job
from holdfast.jobs.job import Outcome, State
from holdfast.stores.contract import NewJob, Store
from holdfast.stores.sqlite.jobs import SqliteStore
from tests.by_hand import WorkerByHand
from tests.damage import damage
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("Q7")
Make = Callable[..., App]


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    since: date


class Parcel(msgspec.Struct):
    weight: Decimal
    to: Address


GIVEN: dict[str, Any] = {
    "when": datetime(2026, 5, 1, 12, 30, 15, 250, tzinfo=UTC),
    "who": UUID("12345678-1234-5678-1234-567812345678"),
    "price": Decimal("12.30"),
    "colour": Colour.RED,
    "address": Address("Main St", date(2020, 1, 2)),
    "parcel": Parcel(Decimal("0.1"), Address("Side St", date(2021, 3, 4))),
    "tags": {"a"},
    "pair": (1, "x"),
    "span": timedelta(seconds=90.5),
    "blob": b"\x00\xff",
    "maybe": None,
    "text": "NUL \0, tab \t, slash \\, quotes '\", brace {}, percent %s, colon :id, 😀",
}


def test_arguments_come_back_as_the_types_they_were(app: Make) -> None:
    holdfast, seen = app(), []

    @holdfast.queue("mail").job
    def send(
        when: datetime,
        who: UUID,
        price: Decimal,
        colour: Colour,
        address: Address,
        parcel: Parcel,
        tags: set[str],
        pair: tuple[int, str],
        span: timedelta,
        blob: bytes,
        maybe: int | None,
        text: str,
        left_out: str = "default",
    ) -> None:
        seen.append({name: value for name, value in locals().items() if name in GIVEN})
        assert left_out == "default"

    one = send.enqueue(**GIVEN)
    many = send.enqueue_many([GIVEN, GIVEN])
    keyed = send.using(job_key="k").enqueue(**GIVEN)
    assert holdfast.run_until_idle() == 4

    assert [job.refresh().outcome for job in (one, *many, keyed)] == ["success"] * 4
    assert seen == [GIVEN] * 4
    assert one.refresh().payload == one.payload


@pytest.mark.parametrize("length", [1, 20], ids=["by one statement", "too long for one"])
def test_each_of_very_many_jobs_keeps_its_own_payload_and_comes_in_the_order_given(
    app: Make, sql: RawSql, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.postgres.adding.MOST_TEXT", 300_000)
    holdfast = app()

    @holdfast.queue("mail").job
    def send(n: int, text: str) -> None: ...

    given = [{"n": number, "text": "\\\"{}'," * length} for number in range(3000)]
    added = send.enqueue_many(given)

    assert [job.payload for job in added] == given
    assert [job.id for job in added] == sorted({job.id for job in added})
    stored = {row["id"]: msgspec.json.decode(row["payload"]) for row in sql("select id, payload from {job}")}
    assert stored == {job.id: job.payload for job in added}
    assert sql.value("select count(*) from {ready}") == len(given)


WRONG: dict[str, Any] = {
    "a string for a number": {"n": "5"},
    "a flag for a number": {"n": True},
    "a fraction": {"n": 1.5},
    "not a number": {"n": float("nan")},
    "an unknown argument": {"n": 1, "m": 2},
    "nothing": {},
    "a time without a zone": {"n": 1, "at": datetime(2026, 1, 1)},
    "half a letter": {"n": 1, "text": "\ud800"},
    "a key that is a number": {"n": 1, "more": {1: 2}},
    "infinity deep inside": {"n": 1, "more": {"a": [1.0, float("inf")]}},
    "something else": {"n": 1, "more": object()},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused_by_name_and_nothing_is_stored(app: Make, sql: RawSql, name: str) -> None:
    holdfast = app()

    @holdfast.queue("mail").job
    def send(n: int, at: datetime | None = None, text: str = "", more: Any = None) -> None: ...

    holdfast.find()
    attempts: list[Callable[[], Any]] = [
        lambda: send.enqueue(**WRONG[name]),
        lambda: send.enqueue_many([{"n": 1}, WRONG[name]]),
        lambda: send.new(**WRONG[name]),
        lambda: holdfast.enqueue("mail", "send", WRONG[name]),
    ]
    if name not in ("a time without a zone",):  # by the schema: what is no datetime there is no mistake
        stranger = app()
        attempts.append(lambda: stranger.enqueue("mail", "send", WRONG[name]))
    for attempt in attempts:
        with pytest.raises(Invalid, match="send: argument `") as refused:
            attempt()
        assert "\n" not in str(refused.value)
        assert str(refused.value).endswith("Nothing was stored.")
    assert sql.value("select count(*) from {job}") == 0


def test_size_is_capped(app: Make) -> None:
    holdfast, small = app(), app(payload_limit=100)

    def send(text: str) -> int:
        return len(text)

    big, tiny = holdfast.queue("mail").job(send), small.queue("mail").job(send)
    assert big.enqueue("x" * (1024 * 1024 - 20)).id
    for job_type, size, limit in ((big, 2 * 1024 * 1024, "1,048,576"), (tiny, 100, "100")):
        with pytest.raises(Invalid, match=rf"above the limit of {limit}; store the bulk elsewhere"):
            job_type.enqueue("x" * size)
    with pytest.raises(Invalid, match="above the limit"):
        holdfast.enqueue("mail", "send", {"text": "x" * 2 * 1024 * 1024})
    assert holdfast.run_until_idle() == 1
    assert len(holdfast.find()) == 1


@pytest.mark.parametrize("way", ["thread", "loop", "process", "wrapped"])
@pytest.mark.parametrize(("limit", "size"), [(200, 198), (3 << 20, (3 << 20) - 2)])
def test_results_and_checkpoints_are_capped_by_the_limit_of_the_app(app: Make, way: str, limit: int, size: int) -> None:
    holdfast = app(payload_limit=limit)

    def send(length: int, saved: int) -> str:
        if saved and way != "wrapped":
            current_job().checkpoint = "x" * saved
        return "x" * length

    async def send_on_the_loop(length: int, saved: int) -> str:
        return send(length, saved)

    if way == "wrapped":

        @holdfast.around
        def save(job: Any) -> Iterator[None]:
            if job.payload["saved"]:
                job.checkpoint = "x" * job.payload["saved"]
            yield

    declare = holdfast.queue("mail").job(name="send", retries=0, isolation="process" if way == "process" else "thread")
    job_type = declare(send_on_the_loop if way == "loop" else send)
    jobs = [job_type.enqueue(*sizes) for sizes in ((size, 0), (size + 1, 0), (1, size), (1, size + 1))]
    holdfast.run_until_idle()
    fits, too_big, saved, unsaved = (job.refresh() for job in jobs)
    assert (fits.outcome, len(fits.result), saved.outcome) == ("success", size, "success")
    for job, kind in ((too_big, "result"), (unsaved, "exception")):
        assert (job.outcome, job.error and job.error.kind) == ("error", kind)
        assert f"above the limit of {limit:,}" in str(job.error)


@pytest.mark.parametrize(("limit", "size"), [(200, 180), (3 << 20, (3 << 20) - 20)])
def test_the_payload_of_a_retry_is_capped_by_the_limit_of_the_app(app: Make, limit: int, size: int) -> None:
    holdfast = app(payload_limit=limit)

    @holdfast.queue("mail").job
    def send(text: str) -> None:
        if len(text) < size:
            raise ValueError("too short")

    @send.retry_handler
    def longer(job: Job, error: JobError) -> Retry:
        return Retry(delay=0, payload={"text": "x" * (size if job.payload["text"] == "fits" else limit)})

    fits, too_big = send.enqueue("fits"), send.enqueue("does not")
    holdfast.run_until_idle()
    assert (fits.refresh().outcome, too_big.refresh().outcome) == ("success", "error")
    assert f"above the limit of {limit:,}" in str(too_big.refresh().error)


@pytest.mark.claim("R3")
@pytest.mark.parametrize(
    "told", ["y" * 3_000_000, ValueError("y" * 3_000_000), JobError("Bank", "y" * 20_000, "failed")]
)
def test_the_text_of_a_failure_from_outside_is_cut_like_that_of_a_handler(app: Make, told: Any) -> None:
    holdfast = app()

    @holdfast.queue("mail").job
    def send() -> None:
        raise Failed("y" * 20_000)

    own, outside = send.enqueue(), send.enqueue()
    holdfast.fail(job_id=outside.id, error=told)
    answer = outside.refresh().answer
    assert answer is not None
    holdfast.run_until_idle()
    assert str(answer.error) == str(own.refresh().error) == "y" * 10_000


def test_a_payload_that_no_longer_converts_is_an_error_that_is_not_retried(app: Make) -> None:
    old, new = app(), app()
    called = []

    @old.queue("mail").job(name="send", retries=3)
    def send(to: str) -> None: ...

    @new.queue("mail").job(name="send", retries=3)
    def changed(to: int) -> None:
        called.append(to)

    job = send.enqueue("text")
    new.run_until_idle()

    found = job.refresh()
    assert (found.state, found.outcome, found.attempt, called) == (State.FINAL, Outcome.ERROR, 1, [])
    assert found.error is not None
    assert found.error.kind == "payload"
    assert "`to`" in str(found.error)


def test_nothing_is_pickled_and_plain_sql_reads_the_payload(app: Make, sql: RawSql) -> None:
    @app().queue("mail").job
    def send(address: Address, n: int = 0) -> None: ...

    job = send.enqueue(Address("é", date(2020, 1, 2)))

    assert sql.row(job.id)["payload"] == '{"address":{"street":"é","since":"2020-01-02"}}'


def test_many_jobs_at_once_keep_the_text_of_their_payloads(store: Store, sql: RawSql) -> None:
    """Where one statement stores them all their texts are part of another text."""
    values = [r"\u0000", r"\"\\\/\b\f\n\r\t", r"\\u0000", "\u2028\ufeff\U0001f600\x7f", "'; --", "$1 :x ?1 %s"]
    texts = [f'{{"a":"{value}"}}' for value in values]
    texts += ['{"a":123456789012345678901234567890}', '{ "a" : -0.0 }', '{"a":0.10}', f'{{"a":{"[" * 900}{"]" * 900}}}']
    added = store.add([NewJob("mail", "send", text) for text in texts * 3])

    assert [sql.row(job.id)["payload"] for job in added] == texts * 3
    assert [(call.id, call.payload) for call in WorkerByHand(store).claim(100)] == [
        (job.id, text) for job, text in zip(added, texts * 3, strict=True)
    ]


def test_many_jobs_at_once_may_be_larger_than_one_text(store: Any) -> None:
    if isinstance(store, SqliteStore):
        store.connection.database.limit(apsw.SQLITE_LIMIT_LENGTH, 25_000_000)  # of a billion
    text = '{"a":"' + '\\"' * 500_000 + '"}'
    added = store.add([NewJob("mail", "send", text) for _ in range(25)])

    worker = WorkerByHand(store)
    calls = worker.claim(25)
    assert [call.id for call in calls] == [job.id for job in added]
    assert worker.succeed(*calls, result=text) == 0
    assert {(job.state, len(job.result["a"])) for job in map(store.get, (job.id for job in added))} == {
        ("final", 500_000)
    }


def test_what_is_nested_too_deeply_is_refused_and_where_it_stands_already_breaks_no_list(
    app: Make, sql: RawSql
) -> None:
    holdfast = app()

    @holdfast.queue("mail").job(retries=0)
    def send(value: list[Any]) -> None: ...

    @holdfast.queue("calls").job(retries=0)
    def call(value: list[Any]) -> None: ...

    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(Invalid, match="nested too deeply"):
        send.enqueue(value=deep)
    job, other = send.enqueue(value=[]), call.enqueue(value=[])
    damage(sql, "*", "payload", nested(20_000), f"id = {job.id}")
    assert [found.id for found in holdfast.find()] == [other.id, job.id]
    assert holdfast.get(job.id).payload["value"]
    holdfast.run_until_idle()
    assert holdfast.get(other.id).outcome is Outcome.SUCCESS
    ended = holdfast.get(job.id)
    assert ended.outcome is Outcome.ERROR
    with pytest.raises(Invalid, match="nested too deeply"):
        holdfast.retry(job.id)


def nested(levels: int) -> str:
    return '{"value": ' + "[" * levels + "]" * levels + "}"
