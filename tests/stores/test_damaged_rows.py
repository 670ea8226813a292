"""A row that was damaged by hand is shown as such; it keeps no reader, worker, sweeper or scheduler from the others."""

from collections.abc import Callable, Iterator
from typing import Any

import apsw
import psycopg
import pytest

from holdfast import ADMIT, App, Conflict, Fixed, Retry, current_job, per_key, share
from holdfast.clock import MovableClock
from holdfast.jobs import secrets
from holdfast.jobs.job import Job
from holdfast.stores import queryfile
from holdfast.stores.contract import ArchivePage, Filter, NewJob, QueueDeclared, TypeRow
from holdfast.stores.open import open_store
from tests.by_hand import WorkerByHand
from tests.damage import JOB, TEXTS, damage, damage_bytes, unguarded
from tests.raw_sql import RawSql

pytestmark = pytest.mark.broken_on_purpose
Make = Callable[..., App]
REFUSED = (psycopg.Error, apsw.Error)
HALF = TEXTS["half an object"]


@pytest.fixture
def own(app: Make) -> App:
    made = app()

    @made.queue("mail").job(retries=0)
    def send(to: str = "") -> str:
        if to == "nobody":
            raise ValueError("nobody is there")
        return f"hi {to}"

    return made


def read_everything(app: App, job_id: int) -> list[Any]:
    """What every reader of jobs says; that none of them raises is the point."""
    store, job = app.store, app.get(job_id)
    return [
        *app.find(),
        *store.page(Filter()).jobs,
        *store.page(Filter(job_type="send")).jobs,
        app.history(job_id),
        app.attempts(job_id),
        app.explain(job_id).text,
        store.log(job_id, 0, 10),
        store.counts(),
        store.glance(),
        store.records(0, 0, 100),
        store.recent_ends(),
        store.archived(ArchivePage()),
        job.shown_payload(),
        repr(job),
    ]


def enqueue(app: App, count: int = 1, name: str = "send", **options: Any) -> list[int]:
    types = app.job_types[name].using(**options)
    return [types.enqueue(to=f"to {number}").id for number in range(count)]


# Reading


@pytest.mark.claim("J13")
@pytest.mark.parametrize("column", JOB)
def test_a_damaged_column_is_shown_and_the_other_rows_are_intact(
    own: App, clock: MovableClock, sql: RawSql, column: str
) -> None:
    types = own.job_types["send"]
    ended, failed, sound, old = (types.enqueue(to=to).id for to in ("bob", "nobody", "eve", "old"))
    own.run_until_idle()
    waiting = types.using(delay=3600, job_key="k").enqueue(to="ann").id
    for name, text in TEXTS.items():
        for job_id in (waiting, ended, failed):
            damage(sql, "*", column, text, f"id = {job_id}")
            read_everything(own, job_id)
        intact = own.get(sound)
        assert (intact.payload, intact.result, intact.damaged) == ({"to": "eve"}, "hi eve", ())
        assert intact in own.find()
        unchecked = column == "checkpoint" or (column == "error" and sql.postgres)  # not shown; refused by a check
        readable = (column, name) in {("result", "another shape"), ("answer", "5,000 digits")}
        assert own.get(waiting).damaged == (() if unchecked or readable else (column,)), name
    clock.advance(8 * 86_400)
    assert own.store.archive(7 * 86_400) == 4
    for job_id in (ended, failed, old):
        read_everything(own, job_id)
    assert own.abort(waiting).final
    read_everything(own, waiting)


@pytest.mark.claim("J13")
def test_what_is_damaged_is_shown_as_text_with_the_reason(own: App, sql: RawSql) -> None:
    (job_id,) = enqueue(own)
    own.run_until_idle()
    for column in ("payload", "result", "time_windows", "answer"):
        damage(sql, "*", column, HALF, f"id = {job_id}")
    found = own.get(job_id)
    assert found.payload == {"damaged": {"text": HALF, "reason": "Input data was truncated"}}
    assert found.result == found.payload
    assert found.time_windows == (f"damaged (Expected `array`, got `object`): {HALF}",)
    assert found.answer is not None
    assert found.answer.error is not None
    assert (found.answer.error.type, found.answer.error.kind) == ("Damaged", "damaged")
    assert HALF in str(found.answer.error)
    assert set(found.damaged) == {"payload", "result", "time_windows", "answer"}


@pytest.mark.claim("J13")
def test_a_damaged_result_is_no_result_and_a_damaged_payload_is_not_copied(own: App, sql: RawSql) -> None:
    (job_id,) = enqueue(own)
    own.run_until_idle()
    damage(sql, "*", "result", HALF)
    with pytest.raises(Conflict, match="its stored result cannot be read"):
        own.get(job_id).unwrap()
    damage(sql, "*", "payload", HALF)
    with pytest.raises(Conflict, match="cannot be retried: its stored payload cannot be read"):
        own.retry(job_id)


@pytest.mark.claim("J13")
def test_secrets_stay_hidden_where_the_payload_or_their_list_is_damaged(app: Make, sql: RawSql) -> None:
    own = app()
    own.queue("mail").job(name="log_in", secrets=["password"])(lambda to, password: None)
    job = own.job_types["log_in"].enqueue(to="ann", password="swordfish")
    stranger = app()
    assert stranger.get(job.id).shown_payload() == {"to": "ann", "password": secrets.SHOWN}
    damage(sql, "*", "payload", '{"password": "swordfish"')
    assert "swordfish" not in repr(app().get(job.id).shown_payload())
    damage(sql, "*", "payload", '{"password": "swordfish"}')
    damage(sql, "type", "secrets", HALF)
    assert app().get(job.id).shown_payload() == {"password": secrets.SHOWN}


@pytest.mark.claim("J13")
@pytest.mark.parametrize("moment", ["infinity", "-infinity", "0044-03-15 00:00 BC", "20000-01-01"])
def test_a_moment_that_no_datetime_holds_is_the_first_or_the_last(own: App, sql: RawSql, moment: str) -> None:
    first, second = enqueue(own, 2, delay=60)
    number = -(2**62) if moment.startswith(("-", "0044")) else 2**62
    column = "timestamptz" if sql.postgres else "integer"
    for name in ("scheduled_run_time", "create_time", "update_time", "expires_time", "start_time"):
        with unguarded(sql):
            value = moment if sql.postgres else number
            sql("update {queue:mail} set " + f"{name} = cast(:value as {column}) where id = {first}", value=value)
        read_everything(own, first)
    assert own.get(first).create_time.year == (1 if number < 0 else 9999)
    assert own.get(second) in own.find()
    assert own.abort(first).final


@pytest.mark.claim("J13")
@pytest.mark.parametrize("number", ["inf", "-inf", "nan"])
def test_a_number_that_is_none_keeps_no_reader_from_the_others(own: App, sql: RawSql, number: str) -> None:
    first, second = enqueue(own, 2)
    own.run_until_idle()
    value = float(number) if sql.postgres or number != "nan" else None
    for name in ("priority", "timeout", "progress", "execution_time", "total_time"):
        if value is not None or name not in ("priority", "total_time"):
            with unguarded(sql):
                sql("update {queue:mail} set " + f"{name} = :value where id = {first}", value=value)
        read_everything(own, first)
    assert own.get(second) in own.find()


@pytest.mark.claim("J13")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("column", ["payload", "job_key", "error", "time_windows"])
def test_a_text_that_is_not_utf8_is_shown_with_its_bytes_written_out(own: App, sql: RawSql, column: str) -> None:
    first, second = enqueue(own, 2)
    damage_bytes(sql, first, column)
    read_everything(own, first)
    assert "\\xed\\xa0\\x80" in repr(own.get(first)).replace("\\\\", "\\")
    assert own.get(second) in own.find()
    own.run_until_idle()
    assert own.get(second).outcome == "success"
    assert own.get(first).final


# Working


def wrapped(own: App) -> None:
    @own.around
    def counted(job: Any) -> Iterator[None]:
        yield


def secret(own: App) -> None:
    own.queue("mail").job(name="hide", secrets=["to"])(lambda to="": None)


def by_customer(own: App) -> None:
    own.queue("mail", throttler=per_key("to", 5))


def by_share(own: App) -> None:
    own.queue("mail", throttler=share("to", {"to 0": 3}, others=3), throttle_limit=3)


def by_function(own: App) -> None:
    def admit(running: Any, candidates: Any) -> Any:
        return [ADMIT for _ in candidates]

    own.queue("mail", throttler=admit)


def asked(own: App) -> None:
    @own.job_types["send"].retry_handler
    def judge(job: Job, error: Any) -> Any:
        return None


@pytest.mark.claim("J13")
@pytest.mark.parametrize("set_up", [wrapped, secret, by_customer, by_share, by_function, asked])
def test_a_worker_ends_damaged_jobs_in_an_error_and_runs_the_others(
    own: App, sql: RawSql, set_up: Callable[[App], None]
) -> None:
    set_up(own)
    name = "hide" if set_up is secret else "send"
    damaged, sound = enqueue(own, len(TEXTS), name), enqueue(own, 4, name)
    for job_id, text in zip(damaged, TEXTS.values(), strict=True):
        damage(sql, "*", "payload", text, f"id = {job_id}")
        assert own.explain(job_id).text
    own.run_until_idle()
    assert {own.get(job_id).outcome for job_id in sound} == {"success"}
    ended = [own.get(job_id) for job_id in damaged]
    assert {(job.outcome, job.attempt, job.error.kind if job.error else None) for job in ended} == {
        ("error", 1, "payload")
    }


@pytest.mark.claim("J13")
def test_a_worker_with_threads_ends_damaged_jobs_in_an_error_and_runs_the_others(own: App, sql: RawSql) -> None:
    secret(own)
    damaged = enqueue(own, len(TEXTS), "hide")
    for job_id, text in zip(damaged, TEXTS.values(), strict=True):
        damage(sql, "*", "payload", text, f"id = {job_id}")
    sound = enqueue(own, 10, "hide")
    with own.worker(concurrency=4):
        assert {own.wait(job_id, 60).outcome for job_id in sound} == {"success"}
        assert {own.wait(job_id, 60).outcome for job_id in damaged} == {"error"}


@pytest.mark.claim("J13")
def test_damaged_time_windows_keep_no_job_from_running_or_being_tried_again(
    own: App, clock: MovableClock, sql: RawSql
) -> None:
    @own.queue("mail").job(retries=3, retry=Fixed(10))
    def stumble(to: str) -> None:
        if current_job().attempt < 3:
            raise ValueError("not yet")

    ids = enqueue(own, len(TEXTS) + 1, "stumble")
    for job_id, text in zip(ids, (*TEXTS.values(), '["sometimes"]'), strict=True):
        damage(sql, "*", "time_windows", text, f"id = {job_id}")
        assert own.explain(job_id).text
    for _ in range(3):
        own.run_until_idle()
        clock.advance(11)
    assert {own.get(job_id).outcome for job_id in ids} == {"success"}


@pytest.mark.claim("J13")
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("column", ["retry", "labels", "prefers", "schema", "default_time_windows", "secrets"])
def test_a_damaged_type_stops_no_worker_and_is_stored_again_when_its_code_starts(
    app: Make, own: App, sql: RawSql, column: str, name: str
) -> None:
    @own.queue("mail").job(retries=1)
    def stumble(to: str) -> None:
        raise Retry(delay=0)

    first, second = enqueue(own, 2, "stumble")
    damage(sql, "type", column, TEXTS[name])
    own.store.types()
    own.run_until_idle()
    assert [own.get(job_id).outcome for job_id in (first, second)] == ["error", "error"]
    again = app()
    again.queue("mail").job(retries=1)(stumble.handler.function)
    again.store.queues()
    assert again.store.types()["stumble"].damaged == ()


@pytest.mark.claim("J13")
def test_a_queue_whose_throttler_is_damaged_waits_and_the_others_go_on(app: Make, own: App, sql: RawSql) -> None:
    own.queue("slow", throttler=per_key("to", 1)).job(name="crawl")(lambda to: None)
    (late,), (soon,) = enqueue(own, 1, "crawl"), enqueue(own, 1)
    damage(sql, "queue", "throttler", HALF, "name = 'slow'")
    own.store.queues()
    own.run_until_idle()
    assert own.get(soon).outcome == "success"
    assert (own.get(late).state, bool(own.explain(late).text)) == ("initial", True)
    again = app()
    again.queue("slow", throttler=per_key("to", 1)).job(name="crawl")(lambda to: None)
    again.run_until_idle()
    assert own.get(late).outcome == "success"


@pytest.mark.claim("J13")
def test_a_damaged_lane_keeps_nothing_aside(own: App, sql: RawSql) -> None:
    own.queue("slow", throttler=per_key("to", 1)).job(name="crawl")(lambda to: None)
    crawl = own.job_types["crawl"]
    ids = [crawl.enqueue(to=to).id for to in ("ann", "ann", "ann", "bob", "bob")]
    worker = WorkerByHand(own.store, ("crawl",), ("slow",))
    claimed = worker.claim(1, "slow") + worker.claim(1, "slow")
    assert [call.id for call in claimed] == [ids[0], ids[3]]
    assert worker.claim(1, "slow") == []
    assert {row["id"] for row in sql("select id from {aside}")} >= set(ids[1:3])
    damage(sql, "aside", "lane", HALF, f"id = {ids[1]}")
    assert own.explain(ids[2]).text
    worker.succeed(*claimed)
    own.run_until_idle()
    assert {own.get(job_id).outcome for job_id in ids} == {"success"}


@pytest.mark.claim("J13")
@pytest.mark.parametrize("name", TEXTS)
def test_a_damaged_worker_stops_no_claim_and_no_sweep(own: App, sql: RawSql, name: str) -> None:
    with own.worker(concurrency=1) as worker:
        for column in ("queues", "types", "labels", "duties"):
            damage(sql, "worker", column, TEXTS[name], f"id = {worker.id}")
        assert [row.id for row in own.workers()] == [worker.id]
        by_share(own)
        (job_id,) = enqueue(own)
        own.run_until_idle()
        assert own.wait(job_id, 60).outcome == "success"


@pytest.mark.claim("J13")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_jobs_under_a_damaged_lease_are_recovered(own: App, sql: RawSql, clock: MovableClock) -> None:
    ids = enqueue(own, 2)
    worker = WorkerByHand(own.store)
    worker.claim(2)
    sql("update {lease} set ids = '[1,'")
    worker.die()
    clock.advance(3600)
    own.run_until_idle()
    assert {own.get(job_id).outcome for job_id in ids} == {"success"}


# Schedules, routines, workflows


@pytest.mark.claim("J13")
@pytest.mark.parametrize("name", [*TEXTS, "no period", "no cron"])
def test_a_damaged_schedule_is_shown_and_the_others_fire(
    app: Make, own: App, clock: MovableClock, sql: RawSql, name: str
) -> None:
    more = {
        "no period": '{"name":"first","job_type":"send","every":-5,"misfire":"once"}',
        "no cron": '{"name":"first","job_type":"send","cron":"x","zone":"Nowhere"}',
    }
    for each in ("first", "second"):
        own.schedule(each, every=60, job="send", payload={"to": each})
    own.run_until_idle()
    damage(sql, "schedule", "declared_definition", (TEXTS | more)[name], "name = 'first'")
    assert [row.name for row in own.schedules()] == ["first", "second"]
    clock.advance(61)
    own.run_until_idle()
    assert [job.payload for job in own.find()] == [{"to": "second"}]
    if name in TEXTS:
        with pytest.raises(Conflict, match="Start a worker whose code declares it"):
            own.fire_schedule("first")
    again = app()
    again.queue("mail").job(name="send")(lambda to: None)
    again.schedule("first", every=60, job="send", payload={"to": "first"})
    clock.advance(60)
    again.run_until_idle()
    assert {job.payload["to"] for job in own.find()} == {"first", "second"}


@pytest.mark.claim("J13")
def test_a_damaged_schedule_of_an_operator_is_reset_or_removed(own: App, sql: RawSql) -> None:
    own.schedule("first", every=60, job="send", payload={"to": "ann"})
    own.add_schedule("first", queue="mail", job_type="send", every=30, payload={"to": "ann"})
    damage(sql, "schedule", "set_definition", HALF)
    assert "--declared" in (own.schedules()[0].problem or "")
    assert own.reset_schedule("first").schedule.every == 60
    damage(sql, "schedule", "declared_definition", HALF)
    own.remove_schedule("first")
    assert [row.removed for row in own.schedules(removed=True)] == [True]


@pytest.mark.claim("J13")
@pytest.mark.parametrize("name", TEXTS)
def test_a_damaged_routine_keeps_its_checkpoint_and_goes_on_when_its_code_starts(
    app: Make, clock: MovableClock, sql: RawSql, name: str
) -> None:
    def program() -> App:
        made = app()
        for each in ("poll", "tidy"):

            @made.routine(name=each, every=10)
            def take(turn: Any) -> None:
                current_job().checkpoint = (current_job().checkpoint or 0) + 1

        return made

    first = program()
    first.run_until_idle()
    damage(sql, "routine", "definition", TEXTS[name], "name = 'poll'")
    assert [row.name for row in first.routines()] == ["poll", "tidy"]
    for _ in range(2):
        clock.advance(11)
        first.run_until_idle()
    turns = {row.routine.name: row.parts[0] for row in first.routines()}
    assert (turns["poll"].turns, turns["tidy"].turns) == (2, 3)
    second = program()
    clock.advance(11)
    second.run_until_idle()
    turns = {row.routine.name: row.parts[0] for row in second.routines()}
    assert (turns["poll"].turns, turns["poll"].checkpoint, turns["tidy"].turns) == (3, 3, 4)


@pytest.mark.claim("J13")
@pytest.mark.parametrize("column", ["definition", "ignore", "params", "step_params", "published"])
def test_a_damaged_run_is_shown_and_the_others_end(own: App, sql: RawSql, column: str) -> None:
    flow = own.workflow("flow", params={"a": 1}, secrets=["key"])
    flow.step(name="one")(lambda task: None)
    flow.step(name="two", after=["one"], shards=2)(lambda task: None)
    broken, sound = (flow.submit(trigger, {"key": "swordfish"}) for trigger in ("broken", "sound"))
    damage(sql, "run", column, HALF + "swordfish", f"id = {broken.id}")
    assert len(own.store.runs()) == 2
    own.run_until_idle()
    assert own.store.run_by_id(sound.id).state == "SUCCESS"
    row = own.store.run_by_id(broken.id)
    assert row.damaged == (column,)
    assert "swordfish" not in repr((row.shown_params, row.shown_published))
    assert {step.counts.name for step in row.steps} == {"one", "two"}
    with pytest.raises(Conflict, match="cannot go on: in table `tests__run` the column"):
        own.store.abort_run(broken.id, "tests")


@pytest.mark.claim("J13")
@pytest.mark.parametrize("column", ["partition", "state"])
def test_a_damaged_step_stops_its_run_alone(own: App, sql: RawSql, column: str) -> None:
    flow = own.workflow("flow")
    flow.step(name="one")(lambda task: None)
    flow.step(name="two", after=["one"], shards=2)(lambda task: None)
    broken, sound = (flow.submit(trigger) for trigger in ("broken", "sound"))
    damage(sql, "step", column, HALF, f"run = {broken.id} and name = 'two'")
    own.run_until_idle()
    assert own.store.run_by_id(sound.id).state == "SUCCESS"
    assert own.store.run_by_id(broken.id).state == "UNDONE"
    assert [job.final for job in own.find(job_type="flow.one")] == [True, True]


@pytest.mark.claim("J13")
def test_a_damaged_workflow_is_stored_again_when_its_code_starts(app: Make, sql: RawSql) -> None:
    def program() -> App:
        made = app()
        made.workflow("flow").step(name="one")(lambda task: None)
        made.store.queues()
        return made

    program()
    damage(sql, "workflow", "definition", HALF)
    assert program().store.workflows().keys() == {"flow"}


# Writing


@pytest.mark.claim("J13")
@pytest.mark.parametrize("name", ["half an object", "no number", "nothing", "a word", "escape codes"])
def test_a_payload_that_is_not_json_is_refused_by_the_table(own: App, sql: RawSql, name: str) -> None:
    (job_id,) = enqueue(own)
    with pytest.raises(REFUSED, match=r"JSON|json"):
        sql("update {queue:mail} set payload = :text where id = :id", text=TEXTS[name], id=job_id)
    columns = ", ".join(set(sql.row(job_id)) - {"id", "payload"})
    insert = (
        "insert into {queue:mail} (id, payload, " + columns + ") select 77, :text, " + columns + " from {queue:mail}"
    )
    with pytest.raises(REFUSED, match=r"JSON|json"):
        sql(insert, text=TEXTS[name])
    keyed = insert.replace("job_key", "'k' as job_key").replace("'k' as job_key", "job_key", 1)
    with pytest.raises(REFUSED, match=r"JSON|json"):
        sql(keyed, text=TEXTS[name])
    sql("update {queue:mail} set payload = :text where id = :id", text='{"to": "bob"}', id=job_id)
    own.run_until_idle()
    assert own.get(job_id).result == "hi bob"


@pytest.mark.claim("J13")
def test_a_queue_that_was_there_before_is_guarded_after_the_migration_and_its_damaged_rows_go_on(
    app: Make, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered = queryfile.numbered
    with monkeypatch.context() as patched:
        patched.setattr(
            queryfile, "numbered", lambda package: [each for each in numbered(package) if each[2].find(SECTION) < 0]
        )
        store = open_store(url, "older", MovableClock())
        store.set_up()
        store.register([QueueDeclared("mail", "older_mail")], [TypeRow("send", "mail", has_handler=True)])
        damaged, sound = (store.add([NewJob("mail", "send", '{"to": "ann"}')])[0].id for _ in range(2))
        sql = RawSql(url, "older")
        if not sql.postgres:
            sql('drop trigger "older_mail__payload"')
        sql("update {queue:mail} set payload = :text where id = :id", text=HALF, id=damaged)
        store.close()
    store = open_store(url, "older", MovableClock())
    assert len(store.migrate()) == 1
    store.close()
    with pytest.raises(REFUSED, match=r"JSON|json"):
        sql("update {queue:mail} set payload = '{' where id = :id", id=sound)
    own = app("older")
    own.queue("mail").job(name="send", retries=0)(lambda to: None)
    own.run_until_idle()
    assert (own.get(damaged).outcome, own.get(sound).outcome) == ("error", "success")
    sql.close()


SECTION = "-- Jobs: payloads are JSON."
