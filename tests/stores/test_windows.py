"""W5, I6: a job with `time_windows` starts inside one of them or not at all. The clock stands at midnight, 1 January 2026, a Thursday."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import WAIT, App, Invalid, Retry, Snooze, current_job
from holdfast.clock import Clock, MovableClock
from holdfast.jobs.job import Job, Outcome, State
from holdfast.stores.contract import Filter, NewJob, QueueDeclared, Store
from tests.by_hand import WorkerByHand, add, declare
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("W5")
Make = Callable[..., App]
NIGHT = ("03:47:18-04:11:59",)
INSTANT = timedelta(microseconds=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(store: Store, worker: WorkerByHand) -> list[int]:
    """What can be claimed now, handed back at once."""
    calls = worker.claim(100)
    for call in calls:
        worker.hand_back(call)
    return [call.id for call in calls]


class TestWhenAJobIsPlaced:
    def test_without_a_time_it_is_wanted_at_the_first_opening(self, store: Store) -> None:
        assert add(store, time_windows=NIGHT).scheduled_run_time == utc("2026-01-01T03:47:18")

    def test_without_a_time_and_with_an_open_window_it_is_wanted_now(self, store: Store, clock: MovableClock) -> None:
        clock.set(utc("2026-01-01T04:00"))
        assert add(store, time_windows=NIGHT).scheduled_run_time == clock.now()

    @pytest.mark.parametrize("at", ["2026-01-05T03:47:18", "2026-01-05T04:11:58.999999"])
    def test_a_given_time_inside_is_kept(self, store: Store, at: str) -> None:
        job = add(store, time_windows=NIGHT, scheduled_run_time=utc(at))
        assert (job.scheduled_run_time, store.get(job.id).scheduled_run_time) == (utc(at), utc(at))

    @pytest.mark.parametrize("at", ["2026-01-05T04:11:59", "2026-01-05T12:00", "2026-01-06T03:47:17.999999"])
    def test_a_given_time_outside_moves_to_the_next_opening(self, store: Store, at: str) -> None:
        job = add(store, time_windows=NIGHT, scheduled_run_time=utc(at))
        assert job.scheduled_run_time == store.get(job.id).scheduled_run_time == utc("2026-01-06T03:47:18")

    def test_a_delay_is_a_given_time(self, store: Store) -> None:
        assert add(store, time_windows=NIGHT, delay=4 * 3600).scheduled_run_time == utc("2026-01-01T04:00")
        assert add(store, time_windows=NIGHT, delay=5 * 3600).scheduled_run_time == utc("2026-01-02T03:47:18")

    @pytest.mark.claim("W2")
    def test_a_time_that_has_passed_is_kept_while_its_opening_lasts(self, store: Store, clock: MovableClock) -> None:
        clock.set(utc("2026-01-03T04:00"))
        now = add(store, time_windows=NIGHT)
        earlier = add(store, time_windows=NIGHT, scheduled_run_time=utc("2026-01-03T03:50"))
        before_it = add(store, time_windows=NIGHT, scheduled_run_time=utc("2026-01-03T01:00"))
        long_ago = add(store, time_windows=NIGHT, scheduled_run_time=utc("2026-01-01T03:50"))

        times = [job.scheduled_run_time for job in (now, earlier, before_it, long_ago)]
        assert times == [clock.now(), utc("2026-01-03T03:50"), utc("2026-01-03T03:47:18"), clock.now()]
        calls = WorkerByHand(store).claim(10)
        assert [call.id for call in calls] == [before_it.id, earlier.id, now.id, long_ago.id]

    def test_an_empty_list_means_always(self, store: Store, clock: MovableClock) -> None:
        job = add(store, time_windows=())
        assert (job.scheduled_run_time, job.time_windows) == (clock.now(), ())

    def test_the_windows_are_kept_as_they_were_written(self, store: Store) -> None:
        written = ("mon-fri 22:00-06:00 Europe/Amsterdam", "sat,sun 00:00-24:00")
        assert store.get(add(store, time_windows=written).id).time_windows == written

    def test_each_of_many_has_its_own_windows(self, store: Store) -> None:
        windows = [("05:00-06:00",), (), ("02:00-03:00",), ("05:00-06:00",)]
        jobs = store.add([NewJob("mail", "send", "{}", time_windows=each) for each in windows])
        assert [job.scheduled_run_time.hour for job in jobs] == [5, 0, 2, 5]
        assert [store.get(job.id).scheduled_run_time.hour for job in jobs] == [5, 0, 2, 5]

    @pytest.mark.parametrize(
        ("windows", "said"),
        [
            (["10:00-10:00"], "it ends when it starts"),
            (["25:00-26:00"], "there is no 25:00"),
            ("10:00-12:00", r"write \['10:00-12:00'\]"),
            (None, "give a list of windows"),
            (["10:00-12:00 Mars/Base"], "not a known time zone"),
        ],
    )
    def test_wrong_windows_are_refused_where_they_are_written_and_nothing_is_stored(
        self, app: Make, windows: list[str], said: str
    ) -> None:
        holdfast = app()
        queue = holdfast.queue("mail")

        @queue.job
        def send() -> None: ...

        with pytest.raises(Invalid, match=said):
            send.using(time_windows=windows)
        with pytest.raises(Invalid, match=said):
            holdfast.enqueue("mail", "other", {}, time_windows=windows)
        with pytest.raises(Invalid, match=said):
            queue.job(name="third", time_windows=windows)(lambda: None)
        assert holdfast.find() == []


class TestWhenItsTurnComes:
    """I6: nothing starts outside its window, whoever swept or did not."""

    def test_it_starts_from_the_first_instant_to_before_the_last(self, store: Store, clock: MovableClock) -> None:
        job = add(store, time_windows=NIGHT)
        worker = WorkerByHand(store)
        opening, close = utc("2026-01-01T03:47:18"), utc("2026-01-01T04:11:59")
        found = []
        for at in (opening - INSTANT, opening, close - INSTANT, close, close + timedelta(hours=12)):
            clock.set(at)
            found.append(due(store, worker))
        assert found == [[], [job.id], [job.id], [], []]

    def test_a_job_whose_window_has_closed_moves_to_the_next_opening_with_attempt_unchanged(
        self, store: Store, clock: MovableClock
    ) -> None:
        job = add(store, time_windows=NIGHT)
        worker = WorkerByHand(store)
        clock.set(utc("2026-01-01T04:00"))
        worker.turn(promote=True)
        clock.set(utc("2026-01-01T04:11:59"))
        assert store.pulse().shut
        assert worker.claim() == []

        assert store.shut() == 1

        found = store.get(job.id)
        assert (found.state, found.attempt, found.failures) == (State.INITIAL, 0, 0)
        assert found.scheduled_run_time == utc("2026-01-02T03:47:18")
        assert not store.pulse().shut
        assert store.shut() == 0
        clock.set(found.scheduled_run_time)
        assert worker.claim_one().attempt == 1

    def test_without_any_sweeper_it_is_not_claimed_after_the_close(self, store: Store, clock: MovableClock) -> None:
        """Also when the promoter comes too late, and on the next day."""
        job = add(store, time_windows=NIGHT)
        worker = WorkerByHand(store)
        for at in ("2026-01-01T04:11:59", "2026-01-01T23:00", "2026-01-02T04:00"):
            clock.set(utc(at))
            assert worker.claim(10) == []
        assert store.get(job.id).state is State.INITIAL
        store.shut()
        assert worker.claim_one().id == job.id  # the next opening is now

    @pytest.mark.claim("W3")
    def test_on_a_queue_with_a_limit_too(self, store: Store, instance: str, clock: MovableClock) -> None:
        store.register([QueueDeclared("mail", f"{instance}_mail", throttle_limit=5)], [])
        job = add(store, time_windows=NIGHT)
        worker = WorkerByHand(store)
        assert worker.claim(10) == []
        clock.set(utc("2026-01-01T04:11:58"))
        assert due(store, worker) == [job.id]
        clock.set(utc("2026-01-01T04:11:59"))
        assert worker.claim(10) == []

    def test_a_closed_window_holds_nobody_else_up(self, store: Store, clock: MovableClock) -> None:
        first = add(store, time_windows=("00:00-01:00",), priority=1)
        other = add(store)
        clock.set(utc("2026-01-01T01:00"))
        assert [call.id for call in WorkerByHand(store).claim(10)] == [other.id]
        assert store.get(first.id).state is State.INITIAL

    def test_a_parked_job_whose_window_closes_waits_for_the_next(self, store: Store, clock: MovableClock) -> None:
        job = add(store, "print", time_windows=("00:00-01:00",))
        WorkerByHand(store, ["send"])
        assert store.park(["send"]) == 1
        clock.set(utc("2026-01-01T01:00"))
        assert store.pulse().shut
        assert store.shut() == 1
        assert store.get(job.id).scheduled_run_time == utc("2026-01-02T00:00")
        worker = WorkerByHand(store, ["print"])
        assert worker.claim(10) == []
        clock.set(utc("2026-01-02T00:00"))
        assert worker.claim_one().id == job.id

    def test_a_job_that_runs_at_the_close_finishes(self, store: Store, clock: MovableClock) -> None:
        job = add(store, time_windows=NIGHT)
        worker = WorkerByHand(store)
        clock.set(utc("2026-01-01T04:11:58"))
        call = worker.claim_one()
        clock.set(utc("2026-01-01T05:00"))
        store.shut()
        assert worker.succeed(call) == 0
        assert store.get(job.id).outcome is Outcome.SUCCESS

    def test_many_that_miss_their_window_all_move(self, store: Store, clock: MovableClock) -> None:
        store.add([NewJob("mail", "send", "{}", time_windows=("00:00-01:00",))] * 1500)
        clock.set(utc("2026-01-01T01:00"))
        assert store.shut() + store.shut() == 1500
        assert not store.pulse().shut
        times = {job.scheduled_run_time for job in store.find(Filter(limit=2000))}
        assert times == {utc("2026-01-02T00:00")}

    def test_a_job_that_lost_its_hint_gets_it_back_inside_its_window(
        self, store: Store, sql: RawSql, clock: MovableClock
    ) -> None:
        kept, missed = add(store, time_windows=("00:00-02:00",)), add(store, time_windows=("00:00-01:00",))
        sql("delete from {ready}")
        clock.set(utc("2026-01-01T01:30"))
        assert store.restore(0, 100, 60) == (0, 2)
        assert store.get(kept.id).scheduled_run_time == utc("2026-01-01T00:00")
        assert store.get(missed.id).scheduled_run_time == utc("2026-01-02T00:00")
        worker = WorkerByHand(store)
        assert due(store, worker) == [kept.id]
        clock.set(utc("2026-01-01T02:00"))
        assert worker.claim(10) == []


class TestWhatComesBack:
    """Retries and recoveries obey windows too."""

    @pytest.fixture
    def running(self, store: Store, clock: MovableClock) -> tuple[WorkerByHand, Job]:
        """A worker with a job in hand that began in the last second of its window."""
        job = add(store, time_windows=NIGHT)
        clock.set(utc("2026-01-01T04:11:58"))
        return WorkerByHand(store), job

    def waits_for_the_next_night(self, store: Store, clock: MovableClock, job: Job, attempt: int = 1) -> None:
        found = store.get(job.id)
        assert (found.scheduled_run_time, found.attempt) == (utc("2026-01-02T03:47:18"), attempt)
        worker = WorkerByHand(store)
        for at in ("2026-01-01T04:11:59", "2026-01-02T03:47:17"):
            clock.set(utc(at))
            store.shut()
            assert worker.claim(10) == []
        clock.set(utc("2026-01-02T03:47:18"))
        assert worker.claim_one().attempt == attempt + 1

    @pytest.mark.claim("R5")
    @pytest.mark.parametrize("more", [{"retry_delay": 1.0}, {"retry_at": utc("2026-01-01T12:00")}, {}])
    def test_a_retry_that_lands_outside(
        self, store: Store, clock: MovableClock, running: tuple[WorkerByHand, Job], more: dict[str, object]
    ) -> None:
        worker, job = running
        call = worker.claim_one()
        clock.advance(1)
        worker.fail(call, **more)
        assert store.get(job.id).state is State.ERROR
        self.waits_for_the_next_night(store, clock, job)

    def test_a_retry_that_lands_inside_is_kept(
        self, store: Store, clock: MovableClock, running: tuple[WorkerByHand, Job]
    ) -> None:
        worker, job = running
        worker.fail(worker.claim_one(), retry_at=utc("2026-01-03T04:00"))
        assert store.get(job.id).scheduled_run_time == utc("2026-01-03T04:00")

    @pytest.mark.claim("C3")
    def test_a_job_whose_worker_was_lost(
        self, store: Store, clock: MovableClock, running: tuple[WorkerByHand, Job]
    ) -> None:
        worker, job = running
        worker.claim_one()
        clock.advance(60)
        assert worker.die() == 1
        assert store.get(job.id).failures == 0
        self.waits_for_the_next_night(store, clock, job)

    @pytest.mark.claim("C3")
    def test_a_lost_job_under_the_policy_timeout(
        self, store: Store, clock: MovableClock, running: tuple[WorkerByHand, Job]
    ) -> None:
        declare(store, on_crash="timeout")
        worker, job = running
        worker.claim_one()
        worker.die()
        clock.advance(30)
        store.end_overdue()
        assert store.get(job.id).state is State.ERROR
        self.waits_for_the_next_night(store, clock, job)

    @pytest.mark.claim("C5")
    def test_a_job_that_is_handed_back(
        self, store: Store, clock: MovableClock, running: tuple[WorkerByHand, Job]
    ) -> None:
        worker, job = running
        call = worker.claim_one()
        clock.advance(1)
        worker.hand_back(call)
        self.waits_for_the_next_night(store, clock, job)

    @pytest.mark.claim("W2")
    def test_one_that_comes_back_in_time_keeps_its_place_in_line(self, store: Store, clock: MovableClock) -> None:
        first, second = (add(store, time_windows=NIGHT, scheduled_run_time=utc(at)) for at in
                         ("2026-01-01T03:50", "2026-01-01T03:51"))  # fmt: skip
        clock.set(utc("2026-01-01T04:00"))
        worker = WorkerByHand(store)
        worker.claim_one()
        clock.advance(60)
        worker.die()
        assert store.get(first.id).scheduled_run_time == utc("2026-01-01T03:50")
        assert [call.id for call in WorkerByHand(store).claim(10)] == [first.id, second.id]

    @pytest.mark.claim("R2")
    @pytest.mark.parametrize("delay", [1.0, 3600.0, 23 * 3600.0])
    def test_a_snooze_that_lands_outside(
        self, store: Store, clock: MovableClock, running: tuple[WorkerByHand, Job], delay: float
    ) -> None:
        worker, job = running
        worker.snooze(worker.claim_one(), delay)
        self.waits_for_the_next_night(store, clock, job)

    @pytest.mark.claim("J11")
    def test_a_retry_by_hand_is_a_new_job_with_the_same_windows(self, app: Make, clock: MovableClock) -> None:
        holdfast = app()

        @holdfast.queue("mail").job(retries=0)
        def send() -> None:
            raise ValueError

        job = send.using(time_windows=NIGHT).enqueue()
        clock.set(utc("2026-01-01T04:00"))
        holdfast.run_until_idle()
        clock.set(utc("2026-01-01T12:00"))

        again = holdfast.retry(job.id)

        assert (again.time_windows, again.scheduled_run_time) == (NIGHT, utc("2026-01-02T03:47:18"))
        assert holdfast.run_until_idle() == 0


class TestOtherWindows:
    @pytest.mark.claim("Q5")
    @pytest.mark.parametrize(
        ("windows", "at"),
        [(("10:00-11:00",), "2026-01-01T10:00"), ((), "2026-01-01T04:00"), (NIGHT, "2026-01-01T04:00")],
    )
    def test_replacing_a_job_gives_it_other_windows(
        self, store: Store, clock: MovableClock, windows: tuple[str, ...], at: str
    ) -> None:
        clock.set(utc("2026-01-01T04:00"))
        job = add(store, job_key="k", time_windows=("00:00-05:00",))
        same = add(store, job_key="k", time_windows=windows, on_duplicate="replace")
        assert (same.id, same.duplicate, same.time_windows) == (job.id, True, windows)
        assert same.scheduled_run_time == store.get(job.id).scheduled_run_time == utc(at)
        worker = WorkerByHand(store)
        clock.set(utc(at) - INSTANT)
        assert worker.claim(10) == []
        clock.set(utc(at))
        assert due(store, worker) == [job.id]
        clock.set(utc("2026-01-01T12:00"))
        assert bool(worker.claim(10)) == (windows == ())

    @pytest.mark.claim("Q5")
    def test_a_job_that_was_claimed_while_it_was_to_be_replaced_keeps_its_window(
        self, store: Store, sql: RawSql, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = add(store, job_key="k", time_windows=("00:00-01:00",))
        worker = WorkerByHand(store)

        def claimed_and_handed_back_meanwhile(ids: list[int], unbegun: bool = False) -> int:
            return store.run("drop_ready", {"queue": "mail", "id": job.id, "major": 100, "minor": minor})  # type: ignore[attr-defined]

        worker.hand_back(worker.claim_one())
        minor = sql.value("select minor from {ready}")
        with monkeypatch.context() as patch:
            patch.setattr(store, "_drop_hints", claimed_and_handed_back_meanwhile)
            assert add(store, job_key="k", on_duplicate="replace").time_windows == ("00:00-01:00",)

        clock.set(utc("2026-01-01T01:00"))
        assert worker.claim(10) == []
        assert store.shut() == 1
        clock.set(utc("2026-01-02T00:00"))
        assert worker.claim_one().id == job.id

    @pytest.mark.claim("Q3")
    def test_a_job_takes_its_types_windows_unless_it_has_its_own_or_none(self, app: Make, clock: MovableClock) -> None:
        holdfast = app()

        @holdfast.queue("mail").job(time_windows=["22:00-06:00"])
        def send() -> None: ...

        clock.set(utc("2026-01-01T12:00"))
        jobs = [
            send.enqueue(),
            send.using(time_windows=["13:00-14:00"]).enqueue(),
            send.using(time_windows=[]).enqueue(),
            app().enqueue("mail", "send"),
            app().enqueue("mail", "send", time_windows=[]),
        ]
        assert [job.scheduled_run_time.hour for job in jobs] == [22, 13, 12, 22, 12]
        assert [job.time_windows for job in jobs] == [("22:00-06:00",), ("13:00-14:00",), (), ("22:00-06:00",), ()]
        assert holdfast.run_until_idle() == 2

    def test_of_several_windows_the_next_to_open_counts(self, store: Store, clock: MovableClock) -> None:
        job = add(store, time_windows=("10:00-11:00", "05:00-06:00", "02:00-03:00"))
        times = []
        worker = WorkerByHand(store)
        for _ in range(4):
            times.append(store.get(job.id).scheduled_run_time)
            clock.set(times[-1] + timedelta(hours=1))
            assert worker.claim(10) == []
            assert store.shut() == 1
        assert times == [
            utc("2026-01-01T02:00"),
            utc("2026-01-01T05:00"),
            utc("2026-01-01T10:00"),
            utc("2026-01-02T02:00"),
        ]

    def test_windows_that_overlap_or_touch_close_at_the_later_end(self, store: Store, clock: MovableClock) -> None:
        job = add(store, time_windows=("01:00-03:00", "02:00-05:00", "05:00-06:00"), delay=2.5 * 3600)
        worker = WorkerByHand(store)
        for at, found in (("03:00", [job.id]), ("05:00", [job.id]), ("05:59:59", [job.id]), ("06:00", [])):
            clock.set(utc(f"2026-01-01T{at}"))
            store.shut()
            assert due(store, worker) == found
        assert store.get(job.id).scheduled_run_time == utc("2026-01-02T01:00")

    def test_a_window_may_cross_midnight(self, store: Store, clock: MovableClock) -> None:
        job = add(store, time_windows=("22:00-06:00",), scheduled_run_time=utc("2026-01-01T06:00"))
        assert job.scheduled_run_time == utc("2026-01-01T22:00")
        worker = WorkerByHand(store)
        for at in ("2026-01-01T22:00", "2026-01-02T00:00", "2026-01-02T05:59:59.999999"):
            clock.set(utc(at))
            store.shut()
            assert due(store, worker) == [job.id]
        clock.set(utc("2026-01-02T06:00"))
        assert worker.claim(10) == []

    def test_days_are_those_on_which_the_window_opens(self, store: Store, clock: MovableClock) -> None:
        """From Friday evening to Saturday morning; the clock stands on a Thursday."""
        job = add(store, time_windows=("fri 22:00-06:00",))
        assert job.scheduled_run_time == utc("2026-01-02T22:00")
        saturday = add(store, time_windows=("fri 22:00-06:00",), scheduled_run_time=utc("2026-01-03T05:00"))
        assert saturday.scheduled_run_time == utc("2026-01-03T05:00")
        worker = WorkerByHand(store)
        clock.set(utc("2026-01-03T05:59"))
        assert due(store, worker) == [job.id, saturday.id]
        clock.set(utc("2026-01-03T06:00"))
        store.shut()
        assert {store.get(each.id).scheduled_run_time for each in (job, saturday)} == {utc("2026-01-09T22:00")}

    @pytest.mark.fault(4, "summer time begins and ends")
    @pytest.mark.parametrize(
        ("window", "wanted", "opening", "close"),
        [
            # Spring: 02:00 to 03:00 is skipped. 02:30 opens at the next valid instant.
            ("02:30-04:00 Europe/Amsterdam", "2026-03-28T12:00", "2026-03-29T01:00", "2026-03-29T02:00"),
            ("02:30-04:00 America/New_York", "2026-03-07T12:00", "2026-03-08T07:00", "2026-03-08T08:00"),
            # The evening before, and the morning after: the same hour of the clock, another of UTC.
            ("22:00-06:00 Europe/Amsterdam", "2026-03-28T12:00", "2026-03-28T21:00", "2026-03-29T04:00"),
            ("22:00-06:00 Europe/Amsterdam", "2026-03-29T12:00", "2026-03-29T20:00", "2026-03-30T04:00"),
            ("22:00-06:00 America/New_York", "2026-03-07T12:00", "2026-03-08T03:00", "2026-03-08T10:00"),
            # Autumn: 02:00 to 03:00 (in New York 01:00 to 02:00) comes twice and opens once.
            ("02:30-02:45 Europe/Amsterdam", "2026-10-24T12:00", "2026-10-25T00:30", "2026-10-25T00:45"),
            ("02:30-02:45 Europe/Amsterdam", "2026-10-25T00:50", "2026-10-26T01:30", "2026-10-26T01:45"),
            ("01:30-01:45 America/New_York", "2026-10-31T12:00", "2026-11-01T05:30", "2026-11-01T05:45"),
            ("01:30-01:45 America/New_York", "2026-11-01T05:50", "2026-11-02T06:30", "2026-11-02T06:45"),
            ("22:00-06:00 Europe/Amsterdam", "2026-10-24T12:00", "2026-10-24T20:00", "2026-10-25T05:00"),
        ],
    )
    def test_the_zones_clock_decides_also_when_it_changes(
        self, store: Store, clock: MovableClock, window: str, wanted: str, opening: str, close: str
    ) -> None:
        clock.set(utc(wanted))
        job = add(store, time_windows=(window,))
        assert job.scheduled_run_time == utc(opening)
        worker = WorkerByHand(store)
        found = []
        for at in (utc(opening) - INSTANT, utc(opening), utc(close) - INSTANT, utc(close)):
            clock.set(at)
            found.append(due(store, worker))
        assert found == [[], [job.id], [job.id], []]


@pytest.mark.claim("W1")
class TestExpiry:
    def test_a_job_that_expires_before_its_first_opening_is_refused(self, store: Store) -> None:
        for expires in ("2026-01-01T03:47:18", "2026-01-01T00:00:01", "2020-01-01"):
            with pytest.raises(Invalid, match=r"expires .* is not after its start 2026-01-01 03:47:18"):
                add(store, time_windows=NIGHT, expires_time=utc(expires))

    def test_it_expires_inside_its_window(self, store: Store, clock: MovableClock) -> None:
        job = add(store, time_windows=NIGHT, expires_time=utc("2026-01-01T04:00"))
        worker = WorkerByHand(store)
        clock.set(utc("2026-01-01T03:59:59"))
        assert due(store, worker) == [job.id]
        clock.set(utc("2026-01-01T04:00"))
        assert worker.claim(10) == []
        store.shut()
        assert store.get(job.id).error.kind == "expired"  # type: ignore[union-attr]

    def test_it_expires_between_two_windows_without_being_moved_beyond(self, store: Store, clock: MovableClock) -> None:
        job = add(store, time_windows=NIGHT, expires_time=utc("2026-01-01T12:00"))
        worker = WorkerByHand(store)
        clock.set(utc("2026-01-01T04:11:59"))
        worker.turn(promote=True)
        assert store.shut() == 1
        found = store.get(job.id)
        assert (found.state, found.scheduled_run_time) == (State.INITIAL, utc("2026-01-01T12:00"))
        clock.set(utc("2026-01-01T12:00"))
        assert worker.claim(10) == []
        assert store.shut() == 1
        found = store.get(job.id)
        assert (found.state, found.outcome, found.start_time) == (State.FINAL, Outcome.ERROR, None)
        assert found.error is not None
        assert found.error.kind == "expired"


class TestWithHandlers:
    def test_a_handler_is_called_only_inside_its_window(self, app: Make, clock: MovableClock) -> None:
        """I6, hour by hour, with an error, a snooze and a plain end."""
        holdfast = app()
        called: list[tuple[str, int, datetime]] = []

        @holdfast.queue("mail").job(time_windows=["mon-fri 22:00-02:00"], retries=3)
        def send(how: str) -> str:
            called.append((how, current_job().attempt, clock.now()))
            if current_job().attempt == 1 and how == "retry":
                raise Retry("later", delay=5 * 3600)
            if current_job().attempt == 1 and how == "snooze":
                raise Snooze(12 * 3600)
            return how

        jobs = [send.enqueue(how) for how in ("plain", "retry", "snooze")]
        clock.set(utc("2026-01-02T03:00"))  # a Friday, after the window
        late = send.enqueue("late")
        for _ in range(5 * 24):
            holdfast.run_until_idle()
            clock.advance(3600)

        assert [job.refresh().result for job in (*jobs, late)] == ["plain", "retry", "snooze", "late"]
        hours = [(how, attempt, at.strftime("%a %H")) for how, attempt, at in called]
        assert hours == [
            *[("plain", 1, "Fri 22"), ("retry", 1, "Fri 22"), ("snooze", 1, "Fri 22"), ("late", 1, "Fri 22")],
            *[("retry", 2, "Mon 22"), ("snooze", 2, "Mon 22")],
        ]

    @pytest.mark.claim("R3")
    def test_a_response_handler_is_called_only_inside_the_window(self, app: Make, clock: MovableClock) -> None:
        holdfast = app()
        called: list[tuple[str, datetime]] = []

        @holdfast.queue("mail").job
        def order() -> object:
            called.append(("handler", clock.now()))
            return WAIT

        @order.response_handler
        def answered(job: Job, response: str) -> str:
            called.append(("response", clock.now()))
            return response

        job = order.using(time_windows=NIGHT, job_key="k").enqueue()
        clock.set(utc("2026-01-01T04:00"))
        holdfast.run_until_idle()
        clock.set(utc("2026-01-01T12:00"))
        holdfast.complete("order", "k", "done")
        assert holdfast.run_until_idle() == 0
        assert job.refresh().scheduled_run_time == utc("2026-01-02T03:47:18")
        clock.set(utc("2026-01-02T03:47:18"))
        holdfast.run_until_idle()

        assert called == [("handler", utc("2026-01-01T04:00")), ("response", utc("2026-01-02T03:47:18"))]
        assert job.refresh().result == "done"

    @pytest.mark.claim("R5")
    def test_a_retry_handlers_time_obeys_the_window(self, app: Make, clock: MovableClock) -> None:
        holdfast = app()

        @holdfast.queue("mail").job(time_windows=NIGHT)
        def send() -> None:
            raise ValueError("broken")

        @send.retry_handler
        def again(job: Job, error: object) -> Retry:
            return Retry(at=utc("2026-01-01T20:00"))

        job = send.enqueue()
        clock.set(utc("2026-01-01T04:00"))
        holdfast.run_until_idle()

        found = job.refresh()
        assert (found.state, found.attempt, found.scheduled_run_time) == (State.ERROR, 1, utc("2026-01-02T03:47:18"))

    def test_a_worker_asleep_is_woken_at_the_opening(self, app: Make) -> None:
        """By the machine's clock; it would look by itself only after an hour."""
        holdfast = app(clock=Clock())

        @holdfast.queue("mail").job
        def send() -> str:
            return "sent"

        with holdfast.worker(poll=3600, concurrency=1):
            now = holdfast.store.now()
            opening = now.replace(microsecond=0) + timedelta(seconds=2)
            window = f"{opening:%H:%M:%S}-{opening + timedelta(hours=1):%H:%M:%S}"
            job = send.using(time_windows=[window]).enqueue()
            assert job.scheduled_run_time == opening
            assert job.unwrap(60) == "sent"
        assert (job.refresh().start_time or now) >= opening

    def test_workers_move_what_they_did_not_get_to(self, app: Make, clock: MovableClock) -> None:
        holdfast = app()

        @holdfast.queue("mail").job(time_windows=NIGHT)
        def send() -> None: ...

        clock.set(utc("2026-01-01T04:00"))
        job = send.enqueue()
        clock.set(utc("2026-01-01T04:12"))
        assert holdfast.run_until_idle() == 0
        assert job.refresh().scheduled_run_time == utc("2026-01-02T03:47:18")


class TestWithoutScanning:
    """Openings and closes are found by index, however many jobs wait, are due, or are parked."""

    FOUND_BY_INDEX = ("promote", "drop_shut", "drop_shut_parked")

    @pytest.mark.parametrize("name", [*FOUND_BY_INDEX, "drop_promoted", "next_wake"])
    def test_no_table_of_jobs_is_read_from_end_to_end(self, store: Store, sql: RawSql, name: str) -> None:
        if sql.postgres and name not in self.FOUND_BY_INDEX:
            pytest.skip("part of `promote` there")
        plan = self.plan(store, sql, name)
        for table in ("ready", "waiting", "parked", "mail"):
            assert f"SCAN {store.instance}__{table}" not in plan, plan  # type: ignore[attr-defined]
            assert f"SCAN {store.instance}_{table}" not in plan, plan  # type: ignore[attr-defined]
            assert f"Seq Scan on {store.instance}__{table}" not in plan, plan  # type: ignore[attr-defined]
            assert f"Seq Scan on {store.instance}_{table}" not in plan, plan  # type: ignore[attr-defined]

    def test_the_sweepers_question_is_answered_by_index(self, store: Store, sql: RawSql) -> None:
        plan = self.plan(store, sql, "pulse")
        for table in ("ready", "parked"):
            assert f"{store.instance}__{table}" in plan, plan  # type: ignore[attr-defined]
            assert f"SCAN {store.instance}__{table}" not in plan, plan  # type: ignore[attr-defined]
            assert f"Seq Scan on {store.instance}__{table}" not in plan, plan  # type: ignore[attr-defined]

    def plan(self, store: Store, sql: RawSql, name: str) -> str:
        text = store.text(name)  # type: ignore[attr-defined]
        if not sql.postgres:
            asked = sql.connection.execute("explain query plan " + text, {"now": 1, "limit": 1000})
            return "\n".join(str(row[3]) for row in asked)
        # Tables of the tests are tiny: without this every one of them is best read whole.
        with sql.transaction() as connection:
            connection.execute("set local enable_seqscan = off")
            connection.execute("set local plan_cache_mode = force_generic_plan")
            asked = connection.execute("explain " + text, {"now": utc("2026-01-01T00:00"), "limit": 1000})
            return "\n".join(row[0] for row in asked)
