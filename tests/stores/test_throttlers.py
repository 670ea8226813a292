"""W4: what a queue's throttler lets start, on both databases, whoever claims."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast import ADMIT, REFUSE, App, Invalid, Reschedule, ThrottledJob, per_key, rate, share
from holdfast.clock import MovableClock
from holdfast.jobs import throttlers
from holdfast.jobs.states import Waited
from holdfast.stores import asking, claiming
from holdfast.stores.asking import Asking
from holdfast.stores.contract import Claimed, Done, QueueDeclared, Store, Turn, TurnAnswer, Want
from tests.by_hand import WorkerByHand, add
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("W4")
REGIONS = share("region", {"eu": 40, "us": 30, "ap": 30})


@pytest.fixture
def throttled(store: Store, instance: str) -> Callable[..., Store]:
    def declare(throttler: Any, limit: float = 0, order: str = "priority") -> Store:
        text = throttlers.encode(throttler)
        store.register([QueueDeclared("mail", f"{instance}_mail", order, limit, text)], [])
        return store

    return declare


def turn(worker: WorkerByHand, room: int = 200, done: Sequence[Claimed] = ()) -> TurnAnswer:
    ended = [call.lease for call in done]
    ends = [Done(call, 0.1, None) for call in done]
    return worker.store.exchange(
        Turn(
            worker.id, done=ends, ended_leases=ended, wants=[Want("mail", room, room)], types=worker.types, promote=True
        )
    )


def region(call: Claimed) -> str:
    found: str = json.loads(call.payload)["region"]
    return found


def fill(store: Store, count: int, *regions: str, **options: Any) -> list[int]:
    return [add(store, payload=json.dumps({"region": name}), **options).id for _ in range(count) for name in regions]


def test_a_hundred_slots_are_split_forty_thirty_thirty_by_region(throttled: Callable[..., Store]) -> None:
    store = throttled(REGIONS)
    fill(store, 50, "eu", "us", "ap")
    one, two = WorkerByHand(store), WorkerByHand(store)
    held = [*turn(one, 35).claimed, *turn(two).claimed]
    assert {name: [region(call) for call in held].count(name) for name in ("eu", "us", "ap")} == {
        "eu": 40,
        "us": 30,
        "ap": 30,
    }
    assert not turn(one).claimed

    ended = [call for call in held[35:] if region(call) == "us"][:7]
    assert [region(call) for call in turn(two, done=ended).claimed] == ["us"] * 7


def test_a_job_that_waits_for_an_answer_keeps_its_slot_of_the_share(throttled: Callable[..., Store]) -> None:
    store = throttled(share("region", {"eu": 1, "us": 1}))
    jobs = fill(store, 2, "eu", "us")
    worker = WorkerByHand(store)
    first, _ = turn(worker).claimed
    worker.tell(first, Waited())
    assert turn(worker).claimed == []
    store.lose(worker.id)
    other = WorkerByHand(store)
    assert [call.id for call in turn(other).claimed] == [jobs[1]]


def test_a_share_is_counted_for_jobs_that_ran_before_there_was_one(
    store: Store, throttled: Callable[..., Store]
) -> None:
    fill(store, 3, "eu")
    worker = WorkerByHand(store)
    worker.claim(2)
    throttled(share("region", {"eu": 2, "us": 2}))
    assert turn(worker).claimed == []
    throttled(share("region", {"eu": 3, "us": 2}))
    assert len(turn(worker).claimed) == 1
    throttled(per_key("region", 3))
    fill(store, 1, "eu")
    assert turn(worker).claimed == []


def test_values_without_a_share_are_refused_or_have_the_others_together(throttled: Callable[..., Store]) -> None:
    store = throttled(REGIONS)
    with pytest.raises(Invalid, match="region that have no share"):
        fill(store, 1, "sa")
    throttled(share("region", {"eu": 40}, others=2))
    jobs = fill(store, 1, "sa", "af", "oc")
    assert [call.id for call in turn(WorkerByHand(store)).claimed] == jobs[:2]


def test_a_job_whose_share_was_taken_away_waits_and_lets_the_others_pass(throttled: Callable[..., Store]) -> None:
    store = throttled(share("region", {"eu": 1, "us": 1}))
    eu, us = fill(store, 1, "eu", "us")
    throttled(share("region", {"us": 1}))
    worker = WorkerByHand(store)
    assert [call.id for call in turn(worker).claimed] == [us]
    throttled(share("region", {"us": 1}, others=1))
    assert [call.id for call in turn(worker).claimed] == [eu]


def test_a_limit_for_each_key_holds_beside_the_queues_own(throttled: Callable[..., Store]) -> None:
    store = throttled(per_key("region", 2), limit=5)
    fill(store, 3, "a", "b", "c", "d")
    held = turn(WorkerByHand(store)).claimed
    assert [region(call) for call in held] == ["a", "b", "c", "d", "a"]


class TestAside:
    """Jobs that cannot start stand aside when the head of the line is full of them."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(claiming, "SMALLEST", 2)
        monkeypatch.setattr(claiming, "MOST_CANDIDATES", 5)

    def test_a_full_share_at_the_head_does_not_hide_the_others(
        self, throttled: Callable[..., Store], sql: RawSql
    ) -> None:
        store = throttled(share("region", {"eu": 2, "us": 2}))
        eu, us = fill(store, 20, "eu"), fill(store, 3, "us")
        worker = WorkerByHand(store)
        held = turn(worker, 4).claimed
        assert [call.id for call in held] == [*eu[:2], *us[:2]]
        assert sql("select count(*) as count from {aside}")[0]["count"] > 0

        for expected in range(2, 19):
            held = [*turn(worker, 2, [held[0]]).claimed, *held[1:]]
            assert held[0].id == eu[expected]
        assert turn(worker, 2).claimed == []

    def test_a_claim_that_has_seen_too_many_of_them_goes_on_at_once_with_the_next(
        self, throttled: Callable[..., Store]
    ) -> None:
        store = throttled(share("region", {"eu": 1, "us": 1}))
        eu, (us,) = fill(store, 100, "eu"), fill(store, 1, "us")
        worker = WorkerByHand(store)
        answer = turn(worker)
        assert ([call.id for call in answer.claimed], answer.full) == (eu[:1], {"mail": 0.0})
        assert [call.id for _ in range(5) for call in turn(worker).claimed] == [us]

    def test_a_limit_lowered_below_the_factor_of_many_takes_them_out_of_the_way_at_once(
        self, throttled: Callable[..., Store], sql: RawSql
    ) -> None:
        store = throttled(None, limit=8)
        heavy = [add(store, throttle_factor=4).id for _ in range(100)]
        light = [add(store).id for _ in range(3)]
        store.limit("mail", 3, "ann")
        worker = WorkerByHand(store)
        held = turn(worker, 5)
        assert ([call.id for call in held.claimed], held.full) == (light, {"mail": None})
        assert sql("select count(*) as count from {aside}")[0]["count"] == 100
        assert sql("select count(*) as count from {ready}")[0]["count"] == 0

        store.limit("mail", 8, "ann")
        assert [call.id for call in turn(worker, 5, held.claimed).claimed] == heavy[:2]

    def test_claim_order_holds_between_the_line_and_those_aside(self, throttled: Callable[..., Store]) -> None:
        store = throttled(share("region", {"eu": 1, "us": 1}))
        eu = fill(store, 12, "eu", priority=50)
        (us,) = fill(store, 1, "us", priority=60)
        worker = WorkerByHand(store)
        held = turn(worker, 4).claimed
        assert [call.id for call in held] == [eu[0], us]
        (urgent,) = fill(store, 1, "eu", priority=10)
        late = fill(store, 1, "eu", priority=55)
        held = turn(worker, 4, [held[0]]).claimed
        assert [call.id for call in held] == [urgent]
        order = []
        for _ in range(12):
            held = turn(worker, 4, held).claimed
            order += [call.id for call in held]
        assert order == [*eu[1:], *late]

    def test_jobs_above_a_lowered_limit_come_back_when_it_is_raised(self, throttled: Callable[..., Store]) -> None:
        store = throttled(None, limit=10)
        heavy = [add(store, throttle_factor=5).id for _ in range(12)]
        light = [add(store).id for _ in range(3)]
        worker = WorkerByHand(store)
        store.limit("mail", 2, "ann")
        held = turn(worker).claimed
        assert [call.id for call in held] == light[:2]
        store.limit("mail", 12, "ann")
        assert [call.id for call in turn(worker, done=held).claimed] == heavy[:2]
        store.limit("mail", 0, "ann")
        assert [call.id for call in worker.claim(100)] == [*heavy[2:], light[2]]

    def test_what_stands_aside_is_aborted_expires_and_is_given_another_order(
        self, throttled: Callable[..., Store], clock: MovableClock, sql: RawSql
    ) -> None:
        store = throttled(share("region", {"eu": 1, "us": 1}))
        eu = fill(store, 8, "eu")
        (dying,) = fill(store, 1, "eu", expires_time=clock.now() + timedelta(seconds=60))
        fill(store, 1, "us")
        worker = WorkerByHand(store)
        held = turn(worker, 4).claimed
        assert store.abort(eu[1], "ann").outcome == "aborted"
        clock.advance(61)
        assert store.pulse().shut
        assert store.shut() == 1
        assert store.get(dying).error is not None
        throttled(share("region", {"eu": 1, "us": 1}), order="schedule")
        assert not sql("select * from {aside}")
        assert [call.id for call in turn(worker, 4, held[:1]).claimed] == [eu[2]]

    def test_what_stands_aside_is_not_taken_for_forgotten(
        self, throttled: Callable[..., Store], clock: MovableClock, sql: RawSql
    ) -> None:
        store = throttled(share("region", {"eu": 1, "us": 1}))
        fill(store, 12, "eu")
        fill(store, 1, "us")
        turn(WorkerByHand(store), 4)
        assert sql("select * from {aside}")
        clock.advance(3600)
        assert store.restore(0, 1000, 60) == (0, 0)

    def test_more_lanes_than_one_claim_looks_at_are_looked_at_in_turns(
        self, throttled: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(claiming, "MOST_LANES", 3)
        monkeypatch.setattr(claiming, "ROUNDS", 20)
        store = throttled(per_key("region", 1))
        names = [f"r{number}" for number in range(8)]
        jobs = fill(store, 3, *names)
        worker = WorkerByHand(store)
        held, order = list(turn(worker).claimed), []
        for _ in range(60):
            order += [call.id for call in held]
            held = list(turn(worker, done=held).claimed)
        assert sorted(order) == jobs


class TestRate:
    def test_a_rate_is_kept_over_all_workers(self, throttled: Callable[..., Store], clock: MovableClock) -> None:
        store = throttled(rate(10, per=60))
        jobs = [add(store).id for _ in range(25)]
        one, two = WorkerByHand(store), WorkerByHand(store)
        assert [call.id for call in turn(one, 6).claimed] == jobs[:6]
        answer = turn(two)
        assert [call.id for call in answer.claimed] == jobs[6:10]
        assert answer.full == {"mail": pytest.approx(6)}
        clock.advance(5)
        assert turn(one).full == {"mail": pytest.approx(1)}
        clock.advance(14)
        assert [call.id for call in turn(one).claimed] == jobs[10:13]
        clock.advance(3600)
        assert [call.id for call in turn(two).claimed] == jobs[13:23]

    def test_an_end_gives_no_token_back_and_a_retry_takes_one(
        self, throttled: Callable[..., Store], clock: MovableClock
    ) -> None:
        store = throttled(rate(2, per=60))
        for _ in range(3):
            add(store, retries=1)
        worker = WorkerByHand(store)
        first, second = turn(worker).claimed
        worker.fail(first)
        assert turn(worker, done=[second]).claimed == []
        clock.advance(30)
        assert len(turn(worker).claimed) == 1
        clock.advance(30)
        assert [call.attempt for call in turn(worker).claimed] == [2]

    def test_factors_are_tokens_and_factor_zero_needs_none(
        self, throttled: Callable[..., Store], clock: MovableClock
    ) -> None:
        store = throttled(rate(10, per=10))
        heavy, light, free = (add(store, throttle_factor=factor).id for factor in (8, 3, 0))
        worker = WorkerByHand(store)
        answer = turn(worker)
        assert [call.id for call in answer.claimed] == [heavy, free]
        assert answer.full == {"mail": pytest.approx(1)}
        clock.advance(1)
        assert [call.id for call in turn(worker).claimed] == [light]

    def test_a_clock_that_is_set_back_stops_no_queue(
        self, throttled: Callable[..., Store], clock: MovableClock
    ) -> None:
        store = throttled(rate(1, per=10))
        for _ in range(3):
            add(store)
        worker = WorkerByHand(store)
        assert len(turn(worker).claimed) == 1
        clock.set(clock.now() + timedelta(hours=2))
        assert len(turn(worker).claimed) == 1
        clock.set(clock.now() - timedelta(hours=1))
        assert turn(worker).claimed == []
        clock.advance(10)
        assert len(turn(worker).claimed) == 1


class TestFunction:
    @pytest.fixture
    def ask(self, throttled: Callable[..., Store]) -> Callable[..., Store]:
        def declare(function: Any, limit: float = 0, has_it: bool = True) -> Store:
            store = throttled(throttlers.named(function, "mail"), limit)
            if has_it:
                store.throttlers["mail"] = Asking("mail", function.__name__, function)
            return store

        return declare

    def test_it_sees_running_and_candidate_jobs_and_admits_refuses_or_reschedules_each(
        self, ask: Callable[..., Store], clock: MovableClock
    ) -> None:
        seen: list[tuple[Sequence[ThrottledJob], Sequence[ThrottledJob]]] = []

        def one_a_region(running: Sequence[ThrottledJob], candidates: Sequence[ThrottledJob]) -> list[Any]:
            seen.append((running, candidates))
            taken = {job.payload["region"] for job in running}
            answers: list[Any] = []
            for job in candidates:
                name = job.payload["region"]
                answers.append(Reschedule(delay=60) if name == "ap" else REFUSE if name in taken else ADMIT)
                taken.add(name)
            return answers

        store = ask(one_a_region)
        first, second, us, ap = fill(store, 1, "eu", "eu", "us", "ap", priority=7, throttle_factor=2)
        worker = WorkerByHand(store)
        answer = turn(worker)
        assert [call.id for call in answer.claimed] == [first, us]
        assert answer.full == {"mail": pytest.approx(claiming.ASK_AGAIN)}
        shown = seen[0][1][0]
        assert (shown.id, shown.job_type, shown.job_key, shown.payload) == (first, "send", None, {"region": "eu"})
        assert (shown.priority, shown.throttle_factor, shown.scheduled_run_time) == (7, 2, clock.now())

        moved = store.get(ap)
        assert (moved.scheduled_run_time, moved.state, moved.attempt) == (
            clock.now() + timedelta(minutes=1),
            "initial",
            0,
        )
        assert [call.id for call in turn(worker, done=[answer.claimed[0]]).claimed] == [second]
        running = [job.id for job in seen[-1][0]]
        assert running == [us]

    def test_a_worker_whose_code_lacks_it_does_not_claim_and_others_do(
        self, ask: Callable[..., Store], store: Store
    ) -> None:
        def everything(running: Sequence[ThrottledJob], candidates: Sequence[ThrottledJob]) -> list[Any]:
            return [ADMIT] * len(candidates)

        def another(running: Sequence[ThrottledJob], candidates: Sequence[ThrottledJob]) -> list[Any]:
            return [ADMIT] * len(candidates)

        ask(everything, has_it=False)
        job = add(store).id
        worker = WorkerByHand(store)
        assert turn(worker).claimed == []
        store.throttlers["mail"] = Asking("mail", "another", another)
        assert turn(worker).claimed == []
        other = store.another(5)
        other.throttlers = {"mail": Asking("mail", "everything", everything)}
        assert [call.id for call in turn(WorkerByHand(other)).claimed] == [job]
        other.close()

    def test_the_limit_holds_for_what_it_admits(self, ask: Callable[..., Store]) -> None:
        def everything(running: Sequence[ThrottledJob], candidates: Sequence[ThrottledJob]) -> list[Any]:
            return [ADMIT] * len(candidates)

        store = ask(everything, limit=4)
        jobs = [add(store, throttle_factor=2).id for _ in range(5)]
        assert [call.id for call in turn(WorkerByHand(store)).claimed] == jobs[:2]

    def test_it_is_shown_no_more_than_a_bounded_number_of_candidates(
        self, ask: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(claiming, "ASKED_ABOUT", 3)
        shown: list[int] = []

        def nothing(running: Sequence[ThrottledJob], candidates: Sequence[ThrottledJob]) -> list[Any]:
            shown.append(len(candidates))
            return [REFUSE] * len(candidates)

        store = ask(nothing)
        for _ in range(10):
            add(store)
        turn(WorkerByHand(store))
        assert shown == [3]

    def test_one_that_raises_admits_nothing_and_rests_before_it_is_asked_again(
        self, ask: Callable[..., Store], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [100.0]
        monkeypatch.setattr(asking, "monotonic", lambda: now[0])
        calls: list[int] = []

        def broken(running: Sequence[ThrottledJob], candidates: Sequence[ThrottledJob]) -> list[Any]:
            calls.append(len(candidates))
            raise SystemExit("no")

        store = ask(broken)
        add(store)
        worker = WorkerByHand(store)
        assert turn(worker).full == {"mail": pytest.approx(1.0)}
        assert "throttler `broken` of queue `mail` failed: SystemExit: no" in caplog.text
        assert turn(worker).full == {"mail": pytest.approx(1.0)}
        assert calls == [1]
        now[0] += 1.5
        assert turn(worker).full == {"mail": pytest.approx(2.0)}
        assert calls == [1, 1]

    def test_one_that_takes_too_long_is_left_behind_and_the_queue_is_free(
        self, ask: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(asking, "PATIENCE", 0.02)
        monkeypatch.setattr(asking, "FIRST_REST", 0.0)
        go_on = threading.Event()

        def endless(running: Sequence[ThrottledJob], candidates: Sequence[ThrottledJob]) -> list[Any]:
            go_on.wait(30)
            return [ADMIT] * len(candidates)

        store = ask(endless)
        job = add(store).id
        worker = WorkerByHand(store)
        assert turn(worker).claimed == []
        assert turn(worker).claimed == []
        assert "took longer than 0.02 s" in caplog.text
        assert "still busy with a call" in caplog.text
        store.limit("mail", 5, "ann")  # the queue's lock is free
        go_on.set()
        while any(thread.name == "holdfast-throttler" for thread in threading.enumerate()):
            time.sleep(0.001)
        assert [call.id for call in turn(worker).claimed] == [job]


class TestApp:
    @pytest.fixture
    def shop(self, app: Callable[..., App]) -> App:
        return app()

    def test_a_throttler_is_declared_with_the_queue_and_stored(self, shop: App) -> None:
        shop.queue("mail", throttler=REGIONS)
        assert [row.throttler for row in shop.store.queues()] == [throttlers.encode(REGIONS)]
        shop.queue("mail", throttler=rate(100, per=60))
        assert [throttlers.decode(row.throttler) for row in shop.store.queues()] == [rate(100, per=60)]

    def test_a_queue_with_a_function_runs_in_the_process_that_has_it(self, shop: App, app: Callable[..., App]) -> None:
        def even(running: Sequence[ThrottledJob], candidates: Sequence[ThrottledJob]) -> list[Any]:
            return [ADMIT if job.payload["n"] % 2 == 0 else REFUSE for job in candidates]

        def declare(shop: App, throttler: Any) -> Any:
            @shop.queue("mail", throttler=throttler).job
            def send(n: int) -> int:
                return n

            return send

        send = declare(shop, even)
        jobs = [send.enqueue(n=n) for n in range(6)]
        assert shop.run_until_idle() == 3
        assert [job.refresh().result for job in jobs] == [0, None, 2, None, 4, None]

    def test_what_is_no_throttler_is_refused(self, shop: App) -> None:
        with pytest.raises(Invalid, match="a function with a name"):
            shop.queue("mail", throttler="fast")  # type: ignore[arg-type]
