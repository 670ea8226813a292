"""Mistakes of callers and broken surroundings: one paragraph each, with what to do."""

import inspect
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import WAIT, App, HoldfastError, Invalid, NotFound, Retry, Snooze, Unavailable
from holdfast.clock import MovableClock
from holdfast.database_url import resolve
from holdfast.stores import queryfile
from holdfast.stores.contract import Filter, Store
from holdfast.stores.open import open_store
from tests.by_hand import add
from tests.raw_sql import RawSql

SOURCES = Path(holdfast.__file__).parent.parent
Make = Callable[..., App]


@contextmanager
def told(kind: type[HoldfastError], *words: str) -> Iterator[None]:
    """An error of that kind, in one paragraph that holds these words."""
    with pytest.raises(kind) as raised:
        yield
    text = str(raised.value)
    assert "\n" not in text, text
    assert len(text) > 25, text
    assert re.search(r"[.)'\"/…\]]$", text), text
    for word in words:
        assert word in text, text


@pytest.mark.claim("Q1")
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("shop.db", ["is not a database URL", "sqlite:///file.db", "postgresql://"]),
        ("", ["is not a database URL"]),
        ("mysql://localhost/x", ["`mysql`", "does not speak"]),
        ("sqlite://", ["names no SQLite file"]),
        ("sqlite://file.db", ["names no SQLite file"]),
        ("sqlite:///", ["names no SQLite file"]),
        ("sqlite:///a\0b", ["names no SQLite file"]),
        ("{not json", ["JSON cannot be read"]),
        ("{}", ['must name a "database"']),
        ({}, ['must name a "database"']),
        ({"host": "x"}, ['must name a "database"']),
        (5, ["URL or a mapping, not int"]),
    ],
)
def test_a_wrong_url_says_which_forms_there_are(url: Any, words: list[str]) -> None:
    with told(Invalid, *words):
        resolve(url)


@pytest.mark.parametrize(
    "url", ["postgresql://localhost/x?nonsense=1", "postgresql://[::1/x", {"database": "x", "nonsense": 1}]
)
def test_a_postgresql_url_is_checked_before_it_is_used(url: Any) -> None:
    with told(Invalid, "not valid", "postgresql://user:password@host:5432/database"):
        open_store(url, "shop", MovableClock())


def test_a_url_with_postgres_in_short_is_understood() -> None:
    assert resolve("postgres://host/x") == resolve("postgresql://host/x") == ("postgresql", "postgresql://host/x")
    assert resolve("sqlite:////tmp/x.db") == ("sqlite", "/tmp/x.db")
    assert resolve("sqlite:///x.db") == ("sqlite", "x.db")
    assert resolve("sqlite://:memory:") == resolve("sqlite:///:memory:") == ("sqlite", ":memory:")
    assert resolve({"database": "a'b\\c"}) == ("postgresql", "dbname='a\\'b\\\\c'")


def test_a_server_that_is_not_there_is_unavailable_after_our_patience(clock: MovableClock, tmp_path: Path) -> None:
    with (
        App(f"postgresql://postgres@/x?host={tmp_path}", clock=clock, patience=0.2) as away,
        told(Unavailable, "cannot be reached", "on that socket? Check the URL and that the server runs"),
    ):
        away.find()


def test_a_database_that_does_not_exist_is_told_at_once(postgres_url: str) -> None:
    with (
        App(postgres_url.replace("tests_", "no_"), patience=60) as away,
        told(Unavailable, "does not exist", "Correct the URL"),
    ):
        away.find()


def test_without_the_driver_the_cure_is_the_extra(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import holdfast\n"
        "holdfast.App('sqlite://:memory:').find()\n"  # needs no PostgreSQL driver
        "try: holdfast.App('postgresql://localhost/x').find()\n"
        "except holdfast.Invalid as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )

    assert "The extra `postgres` brings it: pip install '.[postgres]' in a clone" in done.stdout
    assert len(done.stdout.strip().splitlines()) == 1


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where any user may look, unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@contextmanager
def as_nobody() -> Iterator[None]:
    """To root nothing is read-only."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.fault(6, "a read-only file")
@pytest.mark.parametrize("what", ["the file", "the folder", "both"])
def test_a_read_only_file_is_unavailable_and_nothing_is_lost(
    folder: Path, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    migrations = queryfile.numbered("holdfast.stores.sqlite")  # read now: nobody may not be allowed to read our code
    monkeypatch.setattr(queryfile, "numbered", lambda package: migrations)
    path = folder / "jobs.db"
    with App(f"sqlite:///{path}", clock=clock) as own:
        own.queue("mail")
        job = own.enqueue("mail", "send", {})
    path.chmod(0o666 if what == "the folder" else 0o444)
    folder.chmod(0o777 if what == "the file" else 0o555)

    with as_nobody(), App(f"sqlite:///{path}", clock=clock) as stranger:
        stranger.queue("mail")
        with told(Unavailable, str(path), "right to write to the file and its folder"):
            stranger.enqueue("mail", "send", {})

    folder.chmod(0o755)
    with App(f"sqlite:///{path}", clock=clock) as own:
        assert [found.id for found in own.find()] == [job.id]


def test_a_folder_that_is_missing_is_named(tmp_path: Path, clock: MovableClock) -> None:
    with told(Unavailable, f"{tmp_path}/nowhere/jobs.db: its folder does not exist", "Create it"):
        App(f"sqlite:///{tmp_path}/nowhere/jobs.db", clock=clock).find()
    with told(Unavailable, "cannot be opened"):
        App(f"sqlite:///{tmp_path}", clock=clock).find()


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, clock: MovableClock) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear database,\n" * 100)

    with told(Unavailable, "not an SQLite database", "Correct the URL"):
        App(f"sqlite:///{path}", clock=clock).find()

    assert path.read_text() == "Dear database,\n" * 100


def test_a_file_locked_by_a_stranger_is_unavailable_after_our_patience(tmp_path: Path, clock: MovableClock) -> None:
    path = tmp_path / "jobs.db"
    code = (
        f"import sqlite3; c = sqlite3.connect({str(path)!r}, isolation_level=None); c.execute('begin immediate'); "
        "print('locked', flush=True); input()"
    )
    with App(f"sqlite:///{path}", clock=clock, patience=0.1) as own:
        own.queue("mail")
        job = own.enqueue("mail", "send", {})
        stranger = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "locked\n"
        own.store.connection.database.set_busy_timeout(0)  # type: ignore[attr-defined]
        with told(Unavailable, "another process has kept it locked"):
            own.enqueue("mail", "send", {})
        assert own.get(job.id) == job  # reading goes on
        stranger.communicate("\n")
        assert own.enqueue("mail", "send", {}).id > job.id


@pytest.fixture
def send(app: Make) -> Any:
    own = app()
    own.queue("post")

    @own.queue("mail").job
    def send(to: str = "") -> None: ...

    return send


OPTIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an unknown option": ({"prioritty": 1}, ["unknown option 'prioritty'", "priority"]),
    "a key that is no text": ({"job_key": 5}, ["job_key"]),
    "an empty key": ({"job_key": ""}, ["job_key", "1 to 500"]),
    "a key too long": ({"job_key": "x" * 501}, ["job_key"]),
    "a key with NUL": ({"job_key": "a\0b"}, ["NUL"]),
    "half a letter": ({"job_key": "\ud800"}, ["surrogate"]),
    "a naive time": ({"scheduled_run_time": datetime(2026, 1, 1)}, ["scheduled_run_time", "aware", "time zone"]),
    "a naive expiry": ({"expires": datetime(2026, 1, 1)}, ["expires", "aware"]),
    "a time that is none": ({"scheduled_run_time": "tomorrow"}, ["aware datetime"]),
    "two times": ({"delay": 5, "scheduled_run_time": MovableClock().now()}, ["delay or scheduled_run_time, not both"]),
    "a delay back": ({"delay": -1}, ["delay=-1", "seconds"]),
    "a delay for ever": ({"delay": 1e12}, ["ten years"]),
    "a delay that is no number": ({"delay": "5"}, ["delay"]),
    "no such choice": ({"on_duplicate": "ignore"}, ["on_duplicate='ignore'", "'return', 'raise', 'replace'"]),
    "no number": ({"priority": float("nan")}, ["priority", "finite"]),
    "a negative factor": ({"throttle_factor": -1}, ["throttle_factor", "0 or more"]),
    "negative retries": ({"retries": -1}, ["retries=-1", "0 or more"]),
    "half a retry": ({"retries": 1.5}, ["retries=1.5"]),
    "more retries than a column holds": ({"retries": 2**31}, ["retries=2147483648", "at most 2,147,483,647"]),
    "a number that no float holds": ({"priority": 10**400}, ["priority=1000", "finite"]),
    "a timeout that no float holds": ({"timeout": 10**400}, ["timeout=1000", "finite"]),
    "a delay that no float holds": ({"delay": 10**400}, ["delay=1000", "seconds"]),
    "a factor that no float holds": ({"throttle_factor": 10**400}, ["throttle_factor 1000", "finite"]),
    "no window": ({"time_windows": ["sometimes"]}, ["sometimes"]),
    "equal ends": ({"time_windows": ["01:00-01:00"]}, ["01:00"]),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_wrong_option_is_refused_and_says_what_it_may_be(send: Any, name: str) -> None:
    options, words = OPTIONS[name]
    with told(Invalid, *words):
        send.using(**options)
    with told(Invalid, *words):
        send.app.enqueue("mail", "send", {}, **options)
    assert send.app.find() == []


DECLARATIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "timeout": ({"timeout": 0}, ["timeout=0", "above 0"]),
    "retries": ({"retries": "3"}, ["retries='3'"]),
    "retry": ({"retry": 5}, ["retry=5", "Fixed"]),
    "priority": ({"priority": "high"}, ["priority"]),
    "throttle_factor": ({"throttle_factor": float("inf")}, ["throttle_factor"]),
    "on_crash": ({"on_crash": "explode"}, ["on_crash='explode'", "'rerun' or 'timeout'"]),
    "on_crash for ever": (
        {"on_crash": "timeout", "timeout": None},
        ["would leave a crashed job running for ever", "Give it a timeout"],
    ),
    "max_crashes": ({"max_crashes": 0}, ["max_crashes=0", "1 or more"]),
    "max_crashes yes": ({"max_crashes": True}, ["max_crashes=True", "1 or more"]),
    "max_crashes without end": ({"max_crashes": 2**31}, ["max_crashes=2147483648", "at most"]),
    "timeout beyond numbers": ({"timeout": 10**400}, ["timeout=1000", "finite"]),
    "isolation": ({"isolation": "planet"}, ["isolation='planet'", "'thread' or 'process'"]),
    "time_windows": ({"time_windows": ["25:00-26:00"]}, ["25:00"]),
    "name": ({"name": "a b"}, ["Job type 'a b'"]),
}


@pytest.mark.claim("C3")
@pytest.mark.parametrize("name", DECLARATIONS)
def test_a_wrong_declaration_is_refused_where_it_is_written(app: Make, name: str) -> None:
    options, words = DECLARATIONS[name]
    own = app()
    with told(Invalid, *words):
        own.queue("mail").job(lambda: None, **{"name": "send", **options})
    assert own.job_types == {}


def test_other_words_of_an_app_are_checked(app: Make, send: Any) -> None:
    own = send.app
    for wrong, words in [
        (lambda: own.queue("mail", order="random"), ["order='random'", "'priority' or 'schedule'"]),
        (lambda: own.queue("mail", throttle_limit="many"), ["throttle_limit"]),
        (lambda: app(heartbeat=0), ["heartbeat=0"]),
        (lambda: app(heartbeat=20, lost_after=30), ["at least twice"]),
        (lambda: own.find(state="done"), ["state='done'", "initial, running, error, final"]),
        (lambda: own.find(status="done"), ["status='done'", "completed"]),
        (lambda: own.find(limit=-1), ["limit=-1"]),
        (lambda: own.get("5"), ["A job id is a number"]),
        (lambda: own.get(True), ["A job id is a number"]),
        (lambda: own.find(limit=True), ["limit=True"]),
        (lambda: own.find(limit=2**63), ["limit=9223372036854775808"]),
        (lambda: own.find(job_key=5), ["job_key=5", "text"]),
        (lambda: own.find(job_key="a\0b"), ["job_key=", "text"]),
        (lambda: own.find(queue="\ud800"), ["queue=", "text"]),
        (lambda: own.queue("mail", throttle_limit=10**400), ["throttle_limit=1000", "finite"]),
        (lambda: own.limit("mail", 10**400), ["throttle_limit=1000", "finite"]),
        (lambda: own.wait(1, float("nan")), ["timeout=nan"]),
        (lambda: own.wait(1, "5"), ["timeout='5'"]),
        (lambda: own.run_until_idle(max_jobs="many"), ["max_jobs='many'"]),
        (lambda: own.enqueue("mail", "send", ["a"]), ["payload=['a']", "mapping"]),
        (lambda: own.enqueue("mail", "send", "ab"), ["payload='ab'", "mapping"]),
        (lambda: own.enqueue_many(5), ["enqueue_many", "int"]),
        (lambda: send.enqueue_many(["a"]), ["enqueue_many", "not 'a'"]),
        (lambda: send.enqueue_many({"to": "a"}), ["enqueue_many", "not 'to'"]),
        (lambda: send.enqueue_many(None), ["enqueue_many", "not None"]),
        (lambda: send.enqueue_many([{"to": "a", 5: "b"}]), ["argument `5` is unknown", "Nothing was stored"]),
        (lambda: own.schedule("nightly", job=5, every=60), ["job=5", "no job type"]),
        (lambda: own.schedule("nightly", job=send, every=10**400), ["every=1000", "ten years"]),
        (lambda: app(heartbeat=10**400), ["heartbeat=1000", "seconds"]),
        (lambda: app(patience="long"), ["patience='long'"]),
        (lambda: app(payload_limit=0), ["payload_limit=0", "1 or more"]),
        (lambda: holdfast.rate(10**400, per=1), ["count=1000", "finite"]),
        (lambda: own.worker(speed=5), ["unknown setting 'speed'", "concurrency"]),
        (lambda: own.worker(name="a\0b"), ["name='a\\x00b'", "without NUL"]),
        (lambda: own.worker(name="a\ud800b"), ["name=", "half of a surrogate pair"]),
        (lambda: own.worker(labels=["gpu", "a\0b"]), ["labels='a\\x00b'", "without NUL"]),
        (lambda: own.worker(labels="a\ud800b"), ["labels=", "half of a surrogate pair"]),
        (lambda: own.switch_duty("run", True, label="a\0b"), ["label='a\\x00b'", "without NUL"]),
        (lambda: own.queue("mail").job(labels=["a\0b"])(len), ["labels=", "without NUL"]),
        (lambda: own.worker(concurrency=0), ["concurrency=0"]),
        (lambda: own.worker(concurrency=True), ["concurrency=True"]),
        (lambda: Retry(delay=1, at=MovableClock().now()), ["delay or at, not both"]),
        (lambda: Retry(delay=-1), ["0 or more"]),
        (lambda: Snooze(float("nan")), ["0 or more"]),
        (lambda: Snooze("5"), ["Snooze('5')", "0 or more"]),
        (lambda: Snooze(10**400), ["Snooze(1000", "seconds"]),
        (lambda: Retry(delay="5"), ["Retry(delay='5')", "0 or more"]),
        (lambda: Retry(at="tomorrow"), ["Retry(at='tomorrow')", "aware datetime"]),
        (lambda: Retry(at=datetime(2026, 1, 1)), ["aware datetime"]),
        (lambda: Retry(payload=[1]), ["Retry(payload=[1])", "mapping"]),
        (lambda: WAIT(timeout="5"), ["WAIT(timeout='5')", "above 0"]),
        (lambda: WAIT(timeout=10**400), ["WAIT(timeout=1000", "above 0"]),
    ]:
        with told(Invalid, *words):
            wrong()


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b", 5])
def test_whoever_acts_is_a_text_that_every_database_takes(app: Make, text: Any) -> None:
    own = app()
    report = own.workflow("report")
    report.step(lambda task: None, name="gather")
    run = report.submit("yesterday")
    send = own.queue("mail").job(lambda: None, name="send")
    ended, living = send.enqueue(), send.enqueue()
    own.abort(ended.id)
    verbs: dict[str, tuple[Any, ...]] = {
        "abort": (living.id,),
        "retry": (ended.id,),
        **dict.fromkeys(("complete", "fail"), ("send", "k")),
        **dict.fromkeys(("pause", "resume"), ("mail",)),
        **dict.fromkeys(("hold", "release"), ("pick",)),
        **dict.fromkeys(("reset_schedule", "remove_schedule", "fire_schedule"), ("nightly",)),
        **dict.fromkeys(("pause_routine", "resume_routine", "remove_routine"), ("poll",)),
        "limit": ("mail", 5),
        "switch_duty": ("run", True),
        "drop_duty_rule": (1,),
        "reset_breaker": ("send",),
    }
    public = [name for name in dir(App) if not name.startswith("_") and callable(getattr(App, name))]
    known = {name for name in public if "actor" in inspect.signature(getattr(App, name)).parameters}
    assert known == {*verbs, "add_schedule"}
    acts = [partial(getattr(own, name), *given) for name, given in verbs.items()]
    acts += [partial(own.add_schedule, "nightly", "mail", "send", every=60), partial(own.submit, "report", "today")]
    for act in (*acts, partial(report.submit, "today"), run.abort, run.retry, run.archive, run.delete):
        with told(Invalid, "actor=", "without NUL"):
            act(actor=text)
    assert (living.refresh().state, len(own.find(job_type="send"))) == ("initial", 2)


def test_the_environment_is_checked_too(app: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HEARTBEAT", "soon")
    with told(Invalid, "heartbeat='soon'", "number of seconds"):
        app()


@pytest.mark.parametrize("job_id", [0, -1, 7, 2**63 - 1, 2**63, 10**30])
def test_a_job_that_does_not_exist_is_not_found(store: Store, job_id: int) -> None:
    for verb in (store.get, store.history, store.attempts, lambda job_id: store.abort(job_id, "ann")):
        with told(NotFound, f"There is no job {job_id}"):
            verb(job_id)


@pytest.mark.claim("R3")
def test_an_answer_to_what_no_job_can_be_finds_none(send: Any) -> None:
    own = send.app
    for which in ({"job_id": 2**63}, {"job_id": 10**30}, {"job_id": 0}):
        for answer in (own.complete, own.fail):
            with told(NotFound, "There is no job"):
                answer(**which)
    for key in ("a\0b", "\ud800", "", "x" * 501):
        with told(NotFound, "There is no job"):
            own.complete("send", key)


def test_numbers_that_a_float_holds_are_stored_whatever_their_type(send: Any) -> None:
    own = send.app
    huge = own.queue("mail").job(lambda: None, name="huge", timeout=10**30, priority=-(10**30), throttle_factor=10**30)
    assert (huge.enqueue().refresh().timeout, own.get(1).priority) == (1e30, -1e30)


def test_a_zero_has_no_sign_in_either_store(send: Any, sql: RawSql) -> None:
    own = send.app
    queue = own.queue("mail", throttle_limit=-0.0)
    options = {"priority": -0.0, "throttle_factor": -0.0}
    declared = queue.job(lambda: None, name="zero", prefers=["fast"], prefer_for=-0.0, **options)
    ids = [
        declared.enqueue().id,
        send.using(**options).enqueue(to="ann").id,
        own.enqueue("mail", "send", {"to": "bob"}, **options).id,
        own.enqueue_many([send.using(**options).new(to=name) for name in "cd"])[1].id,
    ]
    own.limit("mail", -0.0)
    workflow = own.workflow("load", priority=-0.0)
    workflow.step(name="first", priority=-0.0)(lambda task: None)
    run = workflow.submit("today", priority=-0.0)
    found = [(job.priority, job.throttle_factor) for job in map(own.get, ids)]
    found += [(job.priority, 0.0) for job in own.store.tasks(run.id, "first")]
    found += [(row["declared_limit"], row["set_limit"]) for row in sql("select * from {queue} where name = 'mail'")]
    found += [
        (row["default_priority"], row["prefer_for"]) for row in sql("select * from {type} where job_type = 'zero'")
    ]
    found += [(row["priority"], 0.0) for row in sql("select * from {run}")]
    assert len(found) == 8
    assert {math.copysign(1, number) for pair in found for number in pair} == {1.0}


@pytest.mark.claim("C3")
def test_a_job_that_only_its_timeout_ends_after_a_crash_has_one(send: Any) -> None:
    own = send.app
    slow = own.queue("mail").job(lambda: None, name="slow", on_crash="timeout")
    for wrong in (lambda: slow.using(timeout=None), lambda: own.enqueue("mail", "slow", {}, timeout=None)):
        with told(Invalid, "timeout=None", "on_crash='timeout'"):
            wrong()
    assert own.find() == []


@pytest.mark.claim("R2")
def test_a_length_of_time_may_be_a_timedelta_wherever_it_is_seconds() -> None:
    minute = timedelta(minutes=1)
    assert (Retry(delay=minute).delay, Snooze(minute).delay, WAIT(timeout=minute).timeout) == (60, 60, 60)


def test_a_filter_is_data_and_never_sql(store: Store) -> None:
    job = add(store, job_key="'; drop table jobs; --")

    assert [found.id for found in store.find(Filter(job_key="'; drop table jobs; --"))] == [job.id]
    assert store.find(Filter(job_type="' or 1=1 --")) == []
    assert store.find(Filter(before=job.id)) == []
    assert [found.id for found in store.find(Filter(before=job.id + 1))] == [job.id]
