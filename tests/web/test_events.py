"""Streams: what has happened, then what happens, once and in order, to many watchers."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from holdfast import App, current_job
from holdfast.stores.contract import Store
from holdfast.web.live import Event, Live
from holdfast.web.topics import Instance, JobTopic, RunTopic
from tests.raw_sql import RawSql
from tests.web.conftest import Client

PATIENCE = 60.0
pytestmark = pytest.mark.claim("E3")


def play(scene: Callable[[Live], Awaitable[None]], app: App) -> None:
    async def run() -> None:
        live = Live(app)
        try:
            await asyncio.wait_for(scene(live), PATIENCE)
        finally:
            await live.close()

    asyncio.run(run())


def read(text: bytes) -> dict[str, Any]:
    fields = dict(line.split(": ", 1) for line in text.decode().strip().splitlines())
    return {**fields, "data": msgspec.json.decode(fields["data"])}


async def take(stream: AsyncIterator[bytes], until: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for text in stream:
        if text.startswith(b":"):
            continue
        found.append(read(text))
        if until(found[-1]):
            return found
    return found


async def everything(stream: AsyncIterator[bytes]) -> list[dict[str, Any]]:
    return await take(stream, lambda event: False)


def moves(events: list[dict[str, Any]]) -> list[tuple[str | None, str]]:
    return [(e["data"]["from_state"], e["data"]["to_state"]) for e in events if e["event"] == "move"]


@pytest.fixture
def talker(shop: App) -> App:
    @shop.queue("mail").job()
    def talk(lines: int) -> None:
        for number in range(lines):
            current_job().log(f"line {number}")
        current_job().progress(1.0, "done")

    return shop


def test_a_final_jobs_stream_is_its_history_and_ends(talker: App) -> None:
    job = talker.enqueue("mail", "talk", {"lines": 3})
    talker.run_until_idle()

    async def scene(live: Live) -> None:
        told = await everything(live.stream("job", lambda: JobTopic(job.id), None))
        assert moves(told) == [(None, "initial"), ("initial", "running"), ("running", "final")]
        assert [e["data"]["text"] for e in told if e["event"] == "log"] == ["line 0", "line 1", "line 2"]
        assert told[-1]["event"] == "end"
        assert told[-1]["data"]["outcome"] == "success"

    play(scene, talker)


def test_every_watcher_of_a_job_is_told_the_same_once_and_in_order(talker: App) -> None:
    job = talker.enqueue("mail", "talk", {"lines": 3})

    async def scene(live: Live) -> None:
        streams = [live.stream("job", lambda: JobTopic(job.id), None) for _ in range(20)]
        first = [await take(stream, lambda e: e["event"] == "move") for stream in streams]
        assert len(live._watched) == 1
        await asyncio.to_thread(talker.run_until_idle)
        rest = await asyncio.gather(*(everything(stream) for stream in streams))
        told = [[*before, *after] for before, after in zip(first, rest, strict=True)]
        assert all(each == told[0] for each in told)
        assert moves(told[0]) == [(None, "initial"), ("initial", "running"), ("running", "final")]
        assert [e["data"]["id"] for e in told[0] if e["event"] == "log"] == [1, 2, 3]
        assert live._watched == {}

    play(scene, talker)


def test_a_job_is_taken_up_behind_the_last_event_also_by_another_server(talker: App) -> None:
    job = talker.enqueue("mail", "talk", {"lines": 3})

    async def before(live: Live) -> None:
        nonlocal known
        told = await take(live.stream("job", lambda: JobTopic(job.id), None), lambda e: e["event"] == "move")
        known = told[-1]["id"]

    known = ""
    play(before, talker)
    talker.run_until_idle()

    async def after(live: Live) -> None:
        told = await everything(live.stream("job", lambda: JobTopic(job.id), known))
        assert moves(told) == [("initial", "running"), ("running", "final")]
        half = [e for e in told if e["event"] == "log"][1]["id"]
        rest = await everything(live.stream("again", lambda: JobTopic(job.id), half))
        assert [e["data"]["text"] for e in rest if e["event"] == "log"] == ["line 2"]
        assert moves(rest) == []

    play(after, talker)


def test_a_run_is_followed_to_its_end(shop: App) -> None:
    run = shop.submit("report", "monday")

    async def scene(live: Live) -> None:
        stream = live.stream("run", lambda: RunTopic(run.id), None)
        first = await take(stream, lambda e: e["event"] == "run")
        assert first[-1]["data"]["state"] == "UNDONE"
        await asyncio.to_thread(shop.run_until_idle)
        told = await everything(stream)
        assert told[-1]["event"] == "end"
        assert told[-1]["data"]["state"] == "SUCCESS"
        numbers = [int(e["id"].split("-")[1]) for e in told]
        assert numbers == sorted(set(numbers))

    play(scene, shop)


def steps(events: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    told = (e["data"] for e in events if e["event"] == "step")
    return [(step["step"], step["from_state"], step["state"]) for step in told if step["from_state"] != step["state"]]


@pytest.fixture
def chain(app: Callable[..., App]) -> App:
    """A workflow of quick steps, written in the other order, and one that is left out."""
    made = app()
    workflow = made.workflow("chain")
    for number in reversed(range(30)):

        def step(task: Any) -> None: ...

        workflow.step(name=f"step{number}", after=[f"step{number - 1}"] if number else [])(step)

    @workflow.step(after=["step29"], can_ignore=True)
    def last(task: Any) -> None: ...

    return made


CHAIN = [
    *((f"step{n}", *move) for n in range(30) for move in (("DORMANT", "READY"), ("READY", "SUCCESS"))),
    ("last", "DORMANT", "IGNORED"),
]


@pytest.mark.claim("F3")
def test_a_run_that_is_over_is_told_by_the_moves_of_its_steps_in_their_order(chain: App) -> None:
    run = chain.submit("chain", "monday", ignore=["last"])
    chain.run_until_idle()

    async def scene(live: Live) -> None:
        told = await everything(live.stream("run", lambda: RunTopic(run.id), None))
        assert steps(told) == CHAIN
        assert [e["event"] for e in told[-2:]] == ["run", "end"]
        times = [e["data"]["time"] for e in told[:-2]]
        assert None not in times
        assert times == sorted(times)
        assert told[-3]["data"]["created"] == 0

    play(scene, chain)


@pytest.mark.claim("F3")
def test_moves_that_nobody_saw_are_told_as_the_table_has_them(chain: App) -> None:
    run = chain.submit("chain", "monday", ignore=["last"])
    topic = RunTopic(run.id)
    topic.look(chain.store)
    before = topic.since(None, chain.store)
    chain.clock.advance(1)  # type: ignore[attr-defined]
    chain.run_until_idle()
    told = [read(event.encode()) for event in (*before, *topic.look(chain.store)) if event.name == "step"]
    assert steps(told) == CHAIN


def test_steps_that_have_not_begun_have_no_history(shop: App) -> None:
    shop.hold("create", workflow="report")
    run = shop.submit("report", "monday")
    topic = RunTopic(run.id)
    topic.look(shop.store)
    assert "count" not in [event.content["step"] for event in topic.history()]


@pytest.mark.claim("F3", "F16")
def test_a_run_that_was_retried_is_told_of_by_moves_of_the_table(app: Callable[..., App]) -> None:
    made, broken = app(), [True]
    workflow = made.workflow("fragile")

    @workflow.step(retries=0)
    def first(task: Any) -> None:
        if broken:
            raise ValueError(broken.pop())

    @workflow.step(after=["first"])
    def second(task: Any) -> None: ...

    run = made.submit("fragile", "monday")
    made.run_until_idle()
    topic = RunTopic(run.id)
    topic.look(made.store)
    made.clock.advance(1)  # type: ignore[attr-defined]
    made.workflow_run("fragile", "monday").retry()
    made.clock.advance(1)  # type: ignore[attr-defined]
    made.run_until_idle()
    ran = [("READY", "SUCCESS"), ("DORMANT", "READY"), ("READY", "SUCCESS")]
    since = [("second", "SKIP_BY_ERROR", "DORMANT"), ("first", "ERROR", "READY")]
    told = steps([read(event.encode()) for event in topic.look(made.store) if event.name == "step"])
    assert sorted(told[:2]) == sorted(since)  # by one action
    assert told[2:] == [(name, *move) for name, move in zip(("first", "second", "second"), ran, strict=True)]
    history = steps([read(event.encode()) for event in topic.history()])
    assert history == [("first", "DORMANT", "READY"), *told[2:]]


def test_a_run_whose_watchers_had_all_left_is_told_anew(shop: App) -> None:
    run = shop.submit("report", "monday")

    async def scene(live: Live) -> None:
        stream = live.stream("run", lambda: RunTopic(run.id), None)
        known = (await take(stream, lambda e: e["event"] == "run"))[-1]["id"]
        await stream.aclose()  # type: ignore[attr-defined]
        assert live._watched == {}
        await asyncio.to_thread(shop.run_until_idle)
        again = live.stream("run", lambda: RunTopic(run.id), known)
        told = await take(again, lambda e: e["event"] == "run")
        assert told[0]["event"] == "reset"
        assert told[-1]["data"]["steps"]["prepare"]["state"] == "SUCCESS"

    play(scene, shop)


def test_a_run_goes_on_behind_the_last_event_while_somebody_watches_it(shop: App) -> None:
    run = shop.submit("report", "monday")

    async def scene(live: Live) -> None:
        stays = live.stream("run", lambda: RunTopic(run.id), None)
        known = (await take(stays, lambda e: e["event"] == "run"))[-1]["id"]
        await asyncio.to_thread(shop.run_until_idle)
        told = await everything(live.stream("run", lambda: RunTopic(run.id), known))
        assert "reset" not in [e["event"] for e in told]
        assert told == await everything(stays)

    play(scene, shop)


def test_a_run_with_more_behind_it_than_is_kept_is_a_reset(shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.topics.KEPT", 2)
    run = shop.submit("report", "monday")
    topic = RunTopic(run.id)
    topic.look(shop.store)
    known = topic.since(None, shop.store)[-1].id
    shop.run_until_idle()
    topic.look(shop.store)
    assert topic.since(known, shop.store)[0].name == "reset"


def test_watchers_who_come_together_are_read_for_once(shop: App) -> None:
    """As all do when a server is started again."""
    run = shop.workflows["report"].submit(trigger="once")
    topic, instance = RunTopic(run.id), Instance()
    shop.enqueue("mail", "refuse", {"why": "no"})
    before = [(topic.look(shop.store), topic.since("1-1", shop.store))[1] for _ in range(2)]
    assert [event.name for event in before[0]] == ["reset", "step", "run"]
    assert before[0][1] is before[1][1]
    shop.run_until_idle()
    topic.look(shop.store)
    after = topic.since("1-1", shop.store)
    assert len(after) > len(before[0])
    instance.look(shop.store)
    missed = [instance.since("0-0", shop.store) for _ in range(2)]
    assert [event.name for event in missed[0]].count("attempt") == 1
    assert all(one is other for one, other in zip(*(told[:-1] for told in missed), strict=True))
    shop.enqueue("mail", "refuse", {"why": "no"})
    shop.run_until_idle()
    instance.look(shop.store)
    assert [event.name for event in instance.since("0-0", shop.store)].count("attempt") == 2


def test_who_knows_everything_is_answered_at_once(shop: App) -> None:
    job = shop.enqueue("mail", "send", {"to": "a"})

    async def scene(live: Live) -> None:
        stream = live.stream("job", lambda: JobTopic(job.id), None)
        known = (await take(stream, lambda e: e["event"] == "move"))[-1]["id"]
        assert await asyncio.wait_for(anext(live.stream("job", lambda: JobTopic(job.id), known)), 5) == b": here\n\n"

    play(scene, shop)


class Ending:
    """A topic that is over at its second look, which takes until it is let go."""

    def __init__(self) -> None:
        self.over, self.looks, self.let_go = False, 0, threading.Event()

    def look(self, store: Store) -> list[Event]:
        self.looks += 1
        if self.looks == 2:
            self.over = True
            self.let_go.wait(PATIENCE)
            return [Event("end", {})]
        return []

    def since(self, last: str | None, store: Store) -> list[Event]:
        return [Event("first", {})]


def test_nobody_leaves_before_the_end_is_told(shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.live.BEAT", 0.01)
    ending = Ending()

    async def scene(live: Live) -> None:
        stream = live.stream("ending", lambda: ending, None)
        told = [await anext(stream)]
        shop.pause("mail")
        async for text in stream:
            told.append(text)
            if ending.over and told[-3:] == [b": still here\n\n"] * 3:
                ending.let_go.set()
        assert told[-1].startswith(b"event: end")

    play(scene, shop)


def test_the_instance_tells_of_each_record_once_and_replays_what_was_missed(shop: App) -> None:
    async def scene(live: Live) -> None:
        stream = live.stream("instance", Instance, None)
        here = (await take(stream, lambda e: e["event"] == "here"))[-1]
        shop.pause("mail", actor="first")
        told = await take(stream, lambda e: e["event"] == "audit")
        assert told[-1]["data"]["actor"] == "first"
        shop.resume("mail", actor="second")
        refused = shop.enqueue("mail", "refuse", {"why": "no"})
        await asyncio.to_thread(shop.run_until_idle)
        records = [e for e in await take(stream, lambda e: e["event"] == "attempt") if "id" in e]
        assert [e["data"]["actor"] for e in records if e["event"] == "audit"] == ["second"]
        assert records[-1]["data"]["job"] == refused.id
        again = live.stream("instance", Instance, here["id"])
        missed = [e for e in await take(again, lambda e: e["event"] == "attempt") if "id" in e]
        assert [e["data"].get("actor") for e in missed] == ["first", "second", None]

    play(scene, shop)


def test_records_are_replayed_to_a_watcher_who_was_the_only_one_also_by_another_server(shop: App) -> None:
    known = ""

    async def before(live: Live) -> None:
        nonlocal known
        stream = live.stream("instance", Instance, None)
        known = (await take(stream, lambda e: e["event"] == "here"))[-1]["id"]

    async def after(live: Live) -> None:
        told = await take(live.stream("instance", Instance, known), lambda e: e["event"] == "counters")
        assert [e["data"].get("actor", e["event"]) for e in told] == ["first", "second", "attempt", "counters"]
        half = told[1]["id"]
        rest = await take(live.stream("instance", Instance, half), lambda e: e["event"] == "counters")
        assert [e["event"] for e in rest] == ["attempt", "counters"]
        assert rest[0]["id"] == told[2]["id"]

    shop.pause("mail", actor="earlier")
    play(before, shop)
    shop.pause("mail", actor="first")
    shop.clock.advance(1)  # type: ignore[attr-defined]
    shop.resume("mail", actor="second")
    shop.clock.advance(1)  # type: ignore[attr-defined]
    shop.enqueue("mail", "refuse", {"why": "no"})
    shop.run_until_idle()
    play(after, shop)


def test_a_watcher_begins_before_a_number_that_may_still_appear(shop: App, sql: RawSql) -> None:
    shop.pause("mail", actor="slow")
    before = shop.store.last_records()[0] - 1
    shop.resume("mail", actor="quick")
    sql("delete from {audit} where actor = 'slow'")  # as if it was not there yet
    topic = Instance()
    topic.look(shop.store)
    assert topic.audit == before
    shop.clock.advance(3)  # type: ignore[attr-defined]
    assert [event.content["actor"] for event in topic.look(shop.store) if event.name == "audit"] == ["quick"]


def test_more_records_than_a_watcher_may_be_behind_are_a_reset(shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.topics.KEPT", 2)
    topic = Instance()
    topic.look(shop.store)
    known = topic.since(None, shop.store)[0].id
    for number in range(3):
        shop.pause("mail", actor=f"operator {number}")
        topic.look(shop.store)
        told = [event.name for event in topic.since(known, shop.store)]
        assert told[0] == ("audit" if number < 2 else "reset")


@pytest.mark.parametrize("last", ["999999-999999", "0--1", "nonsense", ""])
def test_what_cannot_be_replayed_is_a_reset(shop: App, last: str) -> None:
    async def scene(live: Live) -> None:
        told = await take(live.stream("instance", Instance, last), lambda e: True)
        assert told[0]["event"] == "reset"

    play(scene, shop)


def test_counters_follow_what_is_enqueued(shop: App) -> None:
    async def scene(live: Live) -> None:
        def mail(event: dict[str, Any]) -> int | None:
            loads = event["data"].get("queues") if event["event"] == "counters" else None
            return next((load["ready"] for load in loads if load["name"] == "mail"), None) if loads else None

        stream = live.stream("instance", Instance, None)
        await take(stream, lambda e: mail(e) == 0)
        shop.enqueue("mail", "send", {"to": "a"})
        shop.clock.advance(1)  # type: ignore[attr-defined]
        await take(stream, lambda e: mail(e) == 1)
        await take(stream, lambda e: e["event"] == "changed" and e["data"]["queues"] == ["mail"])

    play(scene, shop)


def test_a_watcher_who_is_too_slow_is_told_to_begin_again(shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.live.MOST_BEHIND", 2)

    async def scene(live: Live) -> None:
        stream = live.stream("instance", Instance, None)
        await anext(stream)
        for number in range(5):
            shop.pause("mail", actor=f"operator {number}")
        told = await everything(stream)
        assert told[-1]["event"] == "reset"

    play(scene, shop)


def test_nobody_is_too_slow_for_what_has_happened_before(talker: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.live.MOST_BEHIND", 2)
    job = talker.enqueue("mail", "talk", {"lines": 5})
    talker.run_until_idle()

    async def scene(live: Live) -> None:
        told = await everything(live.stream("job", lambda: JobTopic(job.id), None))
        assert told[-1]["event"] == "end"

    play(scene, talker)


def test_a_stream_is_served(client: Client, shop: App) -> None:
    job = shop.enqueue("mail", "send", {"to": "a"})
    shop.run_until_idle()
    answer = client.get(f"/api/v1/jobs/{job.id}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    here, *told = answer.text.strip().split("\n\n")
    assert here.startswith(":")
    events = [read(part.encode()) for part in told]
    assert events[-1]["event"] == "end"
    assert client.get("/api/v1/jobs/99999/events").status_code == 404
    assert client.get("/api/v1/workflows/report/never/events").status_code == 404


def test_text_in_an_event_cannot_make_another(shop: App) -> None:
    encoded = Event("log", {"text": "a\n\nevent: end\ndata: {}\r\n\r\n"}, "1-1").encode()
    assert encoded.count(b"\n\n") == 1
    assert b"\r" not in encoded
