"""Routines: turns follow one another for ever, one at a time for each part, and leave little behind."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import WAIT, App, Conflict, Fixed, NotFound, Retry, Snooze
from holdfast.clock import MovableClock
from holdfast.jobs.states import Succeeded
from holdfast.stores.contract import PartRow, Report, RoutineRow
from tests.by_hand import WorkerByHand
from tests.raw_sql import RawSql

pytestmark = pytest.mark.claim("F19")
Make = Callable[..., App]
Turns = list[tuple[int, int, int]]  # index, scale, number


def looping(app: Make, act: Callable[[Any], Any] = lambda turn: None, **options: Any) -> tuple[App, Turns]:
    """A program with the routine `poll`, and the turns that it took."""
    holdfast, seen = app(), []

    @holdfast.routine(name="poll", **{"every": 10, **options})
    def poll(turn: Any) -> Any:
        seen.append((turn.index, turn.scale, turn.number))
        return act(turn)

    return holdfast, seen


def poll_of(holdfast: App) -> RoutineRow:
    return next(row for row in holdfast.routines(removed=True) if row.name == "poll")


def part(holdfast: App, index: int = 0) -> PartRow:
    return poll_of(holdfast).parts[index]


def by_hand(holdfast: App) -> WorkerByHand:
    return WorkerByHand(holdfast.store, ("routine.poll",), ("routines",))


def take(worker: WorkerByHand) -> Any:
    return worker.claim_one("routines")


def finish(worker: WorkerByHand, call: Any) -> Any:
    return worker.tell(call, Succeeded(None, 1.0, '{"delay": null}'))


class TestTurns:
    def test_each_part_takes_a_turn_and_the_next_one_an_interval_after_its_end(
        self, app: Make, clock: MovableClock
    ) -> None:
        holdfast, seen = looping(app, scale=3)
        assert holdfast.run_until_idle() == 3
        assert sorted(seen) == [(0, 3, 1), (1, 3, 1), (2, 3, 1)]
        clock.advance(9.9)
        assert holdfast.run_until_idle() == 0
        clock.advance(0.1)
        assert holdfast.run_until_idle() == 3
        assert sorted(seen)[1::2] == [(0, 3, 2), (1, 3, 2), (2, 3, 2)]

    def test_the_interval_counts_from_the_end_of_a_turn(self, app: Make, clock: MovableClock) -> None:
        holdfast, _ = looping(app)
        worker = by_hand(holdfast)
        call = take(worker)
        clock.advance(7)
        finish(worker, call)
        assert part(holdfast).next_time == clock.now() + timedelta(seconds=10)

    def test_declaring_does_no_io_and_two_programs_make_one_loop(self, app: Make, clock: MovableClock) -> None:
        one, seen = looping(app, scale=2)
        two, others = looping(app, scale=2)
        for _ in range(3):
            assert one.run_until_idle() + two.run_until_idle() == 2
            clock.advance(10)
        assert len(seen) + len(others) == 6
        assert [each.turns for each in poll_of(one).parts] == [3, 3]

    def test_a_turn_is_a_job_with_the_key_of_its_part(self, app: Make) -> None:
        holdfast, _ = looping(app, scale=2)
        holdfast.run_until_idle()
        jobs = holdfast.find(job_type="routine.poll")
        assert {(job.job_key, job.queue, job.status) for job in jobs} == {
            (f"poll:{index}", "routines", status) for index in (0, 1) for status in ("completed", "pending")
        }

    def test_a_turn_may_say_when_the_next_one_is_wanted(self, app: Make, clock: MovableClock) -> None:
        def act(turn: Any) -> None:
            if turn.number == 1:
                raise Snooze(77)
            raise Retry("not yet", delay=33)

        holdfast, _ = looping(app, act)
        holdfast.run_until_idle()
        assert part(holdfast).next_time == clock.now() + timedelta(seconds=77)
        assert (part(holdfast).failures, part(holdfast).last_outcome) == (0, "success")
        clock.advance(77)
        holdfast.run_until_idle()
        assert part(holdfast).next_time == clock.now() + timedelta(seconds=33)
        assert part(holdfast).failures == 1

    def test_a_turn_that_waits_is_ended_by_its_answer_and_the_loop_goes_on(
        self, app: Make, clock: MovableClock
    ) -> None:
        holdfast, _ = looping(app, lambda turn: WAIT)
        holdfast.run_until_idle()
        clock.advance(100)
        assert holdfast.run_until_idle() == 0
        assert holdfast.complete("routine.poll", "poll:0", result=5).result == 5
        assert (part(holdfast).turns, part(holdfast).next_time) == (1, clock.now() + timedelta(seconds=10))

    def test_a_turn_is_not_retried_by_hand(self, app: Make) -> None:
        holdfast, _ = looping(app)
        holdfast.run_until_idle()
        with pytest.raises(Conflict, match="turn of routine `poll`"):
            holdfast.retry(part(holdfast).last_job or 0)


class TestCheckpoints:
    def test_a_checkpoint_goes_from_turn_to_turn_by_part(self, app: Make, clock: MovableClock) -> None:
        found: dict[int, list[Any]] = {0: [], 1: []}

        def act(turn: Any) -> None:
            found[turn.index].append(turn.checkpoint)
            turn.checkpoint = {"page": turn.number * 10 + turn.index}

        holdfast, _ = looping(app, act, scale=2)
        for _ in range(3):
            holdfast.run_until_idle()
            clock.advance(10)
        assert found == {0: [None, {"page": 10}, {"page": 20}], 1: [None, {"page": 11}, {"page": 21}]}
        assert [each.checkpoint for each in poll_of(holdfast).parts] == [{"page": 30}, {"page": 31}]

    def test_it_is_kept_when_the_turn_fails_and_by_other_programs(self, app: Make, clock: MovableClock) -> None:
        def act(turn: Any) -> Any:
            turn.checkpoint = (turn.checkpoint or 0) + 1
            raise ValueError("after saving")

        holdfast, _ = looping(app, act)
        holdfast.run_until_idle()
        holdfast.close()
        clock.advance(10)
        found: list[Any] = []
        other, _ = looping(app, lambda turn: found.append(turn.checkpoint))
        other.run_until_idle()
        assert found == [1]


class TestHolders:
    def test_a_part_has_one_holder_and_another_takes_over_when_it_is_lost(self, app: Make, clock: MovableClock) -> None:
        holdfast, _ = looping(app)
        one, two = by_hand(holdfast), by_hand(holdfast)
        call = take(one)
        assert two.claim(1, "routines") == []
        one.die()
        again = take(two)
        assert (again.id, again.attempt) == (call.id, call.attempt + 1)
        assert finish(one, call) is None  # stale: it makes no second loop
        assert [job.job_key for job in holdfast.find(state="initial")] == []
        finish(two, again)
        assert [job.job_key for job in holdfast.find(state="initial")] == ["poll:0"]
        assert part(holdfast).turns == 1

    def test_the_end_of_a_turn_and_the_next_turn_are_one_transaction(
        self, app: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        holdfast, _ = looping(app)
        worker = by_hand(holdfast)
        call = take(worker)

        def broken(*_: Any) -> Any:
            raise RuntimeError("the machine stops here")

        monkeypatch.setattr(type(holdfast.store), "insert", broken)
        with pytest.raises(RuntimeError):
            finish(worker, call)
        monkeypatch.undo()
        assert holdfast.get(call.id).state == "running"
        assert finish(worker, call) is not None

    def test_a_part_that_lost_its_turn_is_given_one(self, app: Make, sql: RawSql) -> None:
        holdfast, _ = looping(app, scale=2)
        holdfast.run_until_idle()
        assert holdfast.store.revive_routines() == 0
        sql("update {part} set job = 999999 where part = 1")
        for job in holdfast.find(job_key="poll:1", state="initial"):  # as if nobody had made a successor
            holdfast.abort(job.id)
        assert holdfast.store.revive_routines() == 1
        assert holdfast.run_until_idle() == 1


class TestErrors:
    def test_errors_do_not_end_the_loop_and_put_it_off_longer_and_longer(self, app: Make, clock: MovableClock) -> None:
        def act(turn: Any) -> None:
            if turn.number <= 6:
                raise ValueError(f"broken {turn.number}")

        holdfast, seen = looping(app, act, every=1)
        waits = []
        for _ in range(6):
            holdfast.run_until_idle()
            planned = part(holdfast).next_time
            assert planned is not None
            waits.append((planned - clock.now()).total_seconds())
            clock.advance(waits[-1])
        assert waits == sorted(waits)
        assert waits[0] < 2 < waits[-1]
        seen_part = part(holdfast)
        assert (seen_part.failures, seen_part.last_outcome, str(seen_part.error)) == (6, "error", "broken 6")
        holdfast.run_until_idle()
        assert part(holdfast).failures == 0
        assert part(holdfast).next_time == clock.now() + timedelta(seconds=1)
        assert str(part(holdfast).error) == "broken 6"  # still told, with its time
        assert len(seen) == 7

    def test_a_policy_of_its_own_and_a_timeout(self, app: Make, clock: MovableClock) -> None:
        def act(turn: Any) -> None:
            raise ValueError("broken")

        holdfast, _ = looping(app, act, retry=Fixed(500))
        holdfast.run_until_idle()
        assert part(holdfast).next_time == clock.now() + timedelta(seconds=500)

    def test_a_turn_that_is_aborted_does_not_end_the_loop(self, app: Make, clock: MovableClock) -> None:
        holdfast, _ = looping(app)
        worker = by_hand(holdfast)
        call = take(worker)
        holdfast.abort(call.id)
        worker.obey_abort(call)
        assert (part(holdfast).last_outcome, part(holdfast).failures, part(holdfast).error) == ("aborted", 0, None)
        assert part(holdfast).next_time == clock.now() + timedelta(seconds=10)

    def test_aborting_a_turn_that_has_not_begun_passes_it_over(self, app: Make, clock: MovableClock) -> None:
        holdfast, seen = looping(app)
        (job,) = holdfast.find(job_type="routine.poll")
        assert holdfast.abort(job.id).outcome == "aborted"
        assert holdfast.run_until_idle() == 0
        clock.advance(10)
        assert holdfast.run_until_idle() == 1
        assert seen == [(0, 1, 1)]


class TestWhatIsLeft:
    def test_a_long_loop_leaves_a_bounded_number_of_rows(self, app: Make, clock: MovableClock, sql: RawSql) -> None:
        def act(turn: Any) -> None:
            turn.job.log("hello")
            if turn.number % 2:
                raise ValueError("every other one")

        holdfast, seen = looping(app, act, keep=3, retry=Fixed(1))
        for _ in range(30):
            holdfast.run_until_idle()
            clock.advance(86_400)  # the archiver would take them after a week
        assert len(seen) == 30
        counted = {
            table: sql(f"select count(*) as n from {{{table}}}")[0]["n"]
            for table in ("job", "attempt", "log", "ended", "archive", "key", "waiting", "ready", "part")
        }
        dead = sql("select count(*) as n from {dead}")[0]["n"]
        assert counted.pop("waiting") + counted.pop("ready") == 1
        assert dead <= 2
        assert counted == {
            "job": 4,
            "attempt": counted["attempt"],
            "log": 3,
            "ended": 0,
            "archive": 0,
            "key": 1,
            "part": 1,
        }
        assert counted["attempt"] <= 2
        assert [job.payload["number"] for job in holdfast.find(state="final")] == [30, 29, 28]


class TestScale:
    def test_more_parts_begin_at_once_and_fewer_end(self, app: Make, clock: MovableClock) -> None:
        one, _ = looping(app, lambda turn: setattr(turn, "checkpoint", turn.index), scale=2)
        one.run_until_idle()
        more, more_seen = looping(app, scale=4)
        more.run_until_idle()
        assert sorted(more_seen) == [(2, 4, 1), (3, 4, 1)]  # the others have had their turn
        clock.advance(10)
        assert more.run_until_idle() == 4
        fewer, fewer_seen = looping(app, scale=1)
        clock.advance(10)
        assert fewer.run_until_idle() == 1
        clock.advance(10)
        assert fewer.run_until_idle() == 1
        assert {index for index, *_ in fewer_seen} == {0}
        again, _ = looping(app, scale=2)
        again.run_until_idle()
        assert part(again, 1).checkpoint == 1  # what a part had saved is there when it comes back

    def test_turns_of_two_scales_never_overlap(self, app: Make) -> None:
        holdfast, _ = looping(app, scale=2, every=0)
        worker = by_hand(holdfast)
        held = take(worker)
        other, _ = looping(app, scale=3, every=0)
        assert other.find(job_type="routine.poll", state="initial") == []
        assert worker.claim(5, "routines") == []
        finish(worker, held)
        begun = worker.claim(5, "routines")
        assert sorted(call.job_key or "" for call in begun) == ["poll:0", "poll:1", "poll:2"]
        assert all('"scale":3' in call.payload for call in begun)

    def test_another_interval_holds_from_the_next_end_on(self, app: Make, clock: MovableClock) -> None:
        holdfast, _ = looping(app)
        holdfast.run_until_idle()
        other, _ = looping(app, every=60)
        clock.advance(10)
        assert other.run_until_idle() == 1
        assert part(other).next_time == clock.now() + timedelta(seconds=60)


class TestOperators:
    def test_pause_and_resume(self, app: Make, clock: MovableClock) -> None:
        holdfast, seen = looping(app, lambda turn: setattr(turn, "checkpoint", turn.number), scale=2)
        holdfast.run_until_idle()
        assert holdfast.pause_routine("poll", actor="ann").paused
        clock.advance(100)
        assert holdfast.run_until_idle() == 0
        again, _ = looping(app, scale=2)  # a restart does not undo it
        assert again.run_until_idle() == 0
        assert [each.checkpoint for each in poll_of(again).parts] == [1, 1]
        assert not again.resume_routine("poll", actor="ann").paused
        assert holdfast.run_until_idle() == 2
        assert sorted(seen)[-1] == (1, 2, 2)

    def test_a_resumed_part_keeps_its_interval(self, app: Make, clock: MovableClock) -> None:
        holdfast, _ = looping(app)
        holdfast.run_until_idle()
        holdfast.pause_routine("poll")
        holdfast.resume_routine("poll")
        assert holdfast.run_until_idle() == 0
        clock.advance(10)
        assert holdfast.run_until_idle() == 1

    def test_a_turn_that_runs_when_it_is_paused_ends_and_is_the_last(self, app: Make) -> None:
        holdfast, _ = looping(app, every=0)
        worker = by_hand(holdfast)
        call = take(worker)
        holdfast.pause_routine("poll")
        assert finish(worker, call) is not None
        assert (part(holdfast).turn, part(holdfast).turns) == (None, 1)
        assert worker.claim(1, "routines") == []

    def test_removed_it_forgets_everything_and_stays_away(self, app: Make, clock: MovableClock, sql: RawSql) -> None:
        holdfast, _ = looping(app, lambda turn: setattr(turn, "checkpoint", turn.number), scale=2)
        holdfast.run_until_idle()
        holdfast.remove_routine("poll", actor="ann")
        assert (holdfast.routines(), holdfast.find(limit=1000)) == ([], [])
        assert sql("select count(*) as n from {part}")[0]["n"] == 0
        again, _ = looping(app, scale=2)
        clock.advance(100)
        assert again.run_until_idle() == 0
        with pytest.raises(NotFound, match="resume poll"):
            again.pause_routine("poll")
        again.resume_routine("poll")
        assert [each.checkpoint for each in poll_of(again).parts] == [None, None]
        assert holdfast.run_until_idle() == 2

    def test_removing_asks_for_the_end_of_what_runs(self, app: Make) -> None:
        holdfast, _ = looping(app)
        worker = by_hand(holdfast)
        call = take(worker)
        holdfast.remove_routine("poll")
        worker.obey_abort(call)
        assert holdfast.get(call.id).outcome == "aborted"
        assert worker.claim(1, "routines") == []

    def test_what_is_done_is_audited(self, app: Make, sql: RawSql) -> None:
        holdfast, _ = looping(app)
        holdfast.pause_routine("poll", actor="ann")
        holdfast.resume_routine("poll", actor="ben")
        holdfast.remove_routine("poll", actor="cid")
        done = [(row["actor"], row["action"], row["detail"]) for row in sql("select * from {audit} order by id")]
        assert done == [
            ("ann", "pause_routine", "poll"),
            ("ben", "resume_routine", "poll"),
            ("cid", "remove_routine", "poll"),
        ]

    def test_one_that_is_not_there_is_said_so(self, app: Make) -> None:
        holdfast, _ = looping(app)
        for verb in (holdfast.pause_routine, holdfast.resume_routine, holdfast.remove_routine):
            with pytest.raises(NotFound, match="no routine `pool`"):
                verb("pool")


def test_a_second_routine_of_a_name_is_refused(app: Make) -> None:
    holdfast, _ = looping(app)
    with pytest.raises(Conflict, match="declared twice"):
        holdfast.routine(name="poll", every=1)(lambda turn: None)


def test_a_report_about_an_older_turn_changes_nothing(app: Make) -> None:
    holdfast, _ = looping(app, every=0)
    worker = by_hand(holdfast)
    first = take(worker)
    finish(worker, first)
    second = take(worker)
    assert holdfast.store.report([Report(first.id, Succeeded(None, 1.0, '{"delay": null}'), first.attempt)]) == [None]
    assert second.id > first.id
    assert part(holdfast).turns == 1
