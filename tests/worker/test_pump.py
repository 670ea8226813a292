"""Turns of a pump, made by hand: who looks when, and who is woken."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from msgspec import structs

from holdfast import App
from holdfast.clock import monotonic
from holdfast.errors import NotFound, Unavailable
from holdfast.stores.contract import Claimed, Turn, TurnAnswer
from holdfast.worker.attempt import handed_back
from holdfast.worker.hand import Hand
from holdfast.worker.pump import Pump
from holdfast.worker.worker import Worker
from tests.faults.fleet import until


@pytest.fixture
def app(url: str, instance: str) -> Iterator[App]:
    """With two queues and a quick job type in each."""
    with App(url, name=instance) as app:
        for name in ("mail", "work"):

            async def quick() -> None: ...

            app.queue(name).job(name=f"quick_{name}")(quick)

        async def wrong() -> None:
            raise ValueError("wrong")

        app.queue("mail").job(name="wrong_mail", retries=0)(wrong)
        yield app


@pytest.fixture
def worker(app: App, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """It has joined, and its two pumps wait to be turned. What they look at a moment later they do not look at here."""
    monkeypatch.setattr("holdfast.worker.pump.LINGER", 60.0)
    made = app.worker_for_ever(concurrency=4, pumps=2)
    made.store = app.store.another(None)
    made.join()
    made.loop.start()
    made.pumps += [Pump(made, made.store.another(None), index) for index in range(2)]
    yield made
    made.loop.stop()
    for pump in made.pumps:
        pump.store.close()
    made.store.leave(made.id)
    made.store.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pump], list[list[str]]]:
    """The queues that a pump asks, turn by turn."""

    def noted(pump: Pump) -> list[list[str]]:
        found, exchange = list[list[str]](), pump.store.exchange

        def note(turn: Turn) -> TurnAnswer:
            found.append([want.queue for want in turn.wants])
            return exchange(turn)

        monkeypatch.setattr(pump.store, "exchange", note)
        return found

    return noted


def test_a_claim_that_emptied_its_queue_is_not_followed_by_a_look_at_all_of_them(app: App, worker: Worker) -> None:
    app.job_types["quick_mail"].enqueue()
    pump = worker.pumps[0]
    assert pump._turn()
    until(lambda: worker.hand.finished, what="it has ended")
    assert (worker.hand.attempts, bool(pump._called or pump._rotation.unasked)) == (1, False)


def test_a_claim_that_got_all_it_asked_for_is_followed_by_a_look(app: App, worker: Worker) -> None:
    app.job_types["quick_mail"].enqueue_many([{} for _ in range(3)])
    pump = worker.pumps[0]
    assert pump._turn()
    assert (worker.hand.attempts, pump._rotation.unasked) == (2, {"mail"})  # half of its four slots are for each queue
    assert pump._looks.keys() == {"mail"}  # also if the next look, which may come at once, finds nothing


def test_a_pump_asks_again_only_where_there_was_more(
    app: App, worker: Worker, asked: Callable[[Pump], list[list[str]]]
) -> None:
    app.job_types["quick_mail"].enqueue_many([{} for _ in range(3)])
    first, second = worker.pumps
    turns = asked(first)
    assert first._turn()
    until(lambda: len(worker.hand.finished) == 2, what="they have ended")
    assert first._turn()
    assert [sorted(queues) for queues in turns] == [["mail", "work"], ["mail"]]
    assert list(second._called_for) == ["mail"]


@pytest.mark.parametrize("name", ["quick_mail", "wrong_mail"])
def test_an_end_under_a_limit_is_no_reason_to_ask_other_queues(
    app: App, worker: Worker, asked: Callable[[Pump], list[list[str]]], name: str
) -> None:
    for queue in ("mail", "work"):
        app.limit(queue, 3)
    app.job_types[name].enqueue()
    pump = worker.pumps[0]
    turns = asked(pump)
    assert pump._turn()
    until(lambda: len(worker.hand.finished) == 1, what="it has ended")
    assert pump._turn()
    assert [sorted(queues) for queues in turns] == [["mail", "work"], ["mail"]]
    assert not pump._is_more()


def test_an_end_for_which_no_more_could_be_asked_is_a_reason_to_ask_its_queue_later(
    app: App, worker: Worker, asked: Callable[[Pump], list[list[str]]]
) -> None:
    for name in ("mail", "work"):
        app.limit(name, 3)
    app.job_types["quick_mail"].enqueue()
    pump = worker.pumps[0]
    turns = asked(pump)
    assert pump._turn()
    until(lambda: len(worker.hand.finished) == 1, what="it has ended")
    kept = worker.hand.reserve(4, ending=1)  # by another pump
    assert pump._turn()
    worker.hand.answered(kept)
    assert pump._turn()
    assert [sorted(queues) for queues in turns] == [["mail", "work"], [], ["mail"]]


def test_of_queues_full_of_quick_jobs_few_are_asked_at_once(
    app: App, worker: Worker, asked: Callable[[Pump], list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mail", "work"):
        app.job_types[f"quick_{name}"].enqueue_many([{} for _ in range(20)])
    monkeypatch.setattr(Hand, "_target", lambda hand: hand.concurrency)
    pump = worker.pumps[0]
    turns = asked(pump)
    for quick in (False, False, True, True):
        monkeypatch.setattr(Hand, "quick", quick)
        assert pump._turn()  # takes four
        until(lambda: len(worker.hand.finished) == 4, what="they have ended")
        assert pump._turn()  # and settles them
    asking = [queues for queues in turns if queues]
    assert [len(queues) for queues in asking] == [2, 2, 1, 1]
    assert {*asking[2], *asking[3]} == {"mail", "work"}


def test_jobs_whose_time_has_come_may_be_in_any_queue(
    app: App, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump = worker.pumps[0]
    assert pump._turn()
    exchange = pump.store.exchange
    monkeypatch.setattr(pump.store, "exchange", lambda turn: structs.replace(exchange(turn), promoted=1))
    pump.look_in(["work"], promote=True)
    assert pump._turn()
    assert pump._called


def test_what_is_told_during_a_turn_is_heeded_in_the_next(
    app: App, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is to be promoted was stored when this turn had looked for such."""
    pump, turns, exchange = worker.pumps[0], list[Turn](), worker.pumps[0].store.exchange

    def told_meanwhile(turn: Turn) -> TurnAnswer:
        turns.append(turn)
        answer = exchange(turn)
        if len(turns) < 3:
            (pump.look if len(turns) == 1 else lambda promote: pump.look_in(["work"], promote))(promote=True)
        return answer

    monkeypatch.setattr(pump.store, "exchange", told_meanwhile)
    for _ in range(3):
        assert pump._turn()
    assert [turn.promote for turn in turns] == [True, True, True]
    assert not pump._turn()


def test_a_turn_that_failed_is_made_again_with_all_it_was_for(
    app: App, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump, turns, exchange = worker.pumps[0], list[Turn](), worker.pumps[0].store.exchange

    def fails_once(turn: Turn) -> TurnAnswer:
        turns.append(turn)
        if len(turns) == 2:
            raise Unavailable("it is away")
        return exchange(turn)

    monkeypatch.setattr(pump.store, "exchange", fails_once)
    assert pump._turn()
    pump.look_in(["work"], promote=True)
    with pytest.raises(Unavailable):
        pump._turn()
    pump.look()  # as whoever runs it does
    assert pump._turn()
    assert [turn.promote for turn in turns] == [True, True, True]


@pytest.mark.parametrize("index", [0, 1])
def test_when_to_look_again_is_not_forgotten_by_a_turn_that_only_claims(
    app: App, worker: Worker, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    """As for the probe of a breaker: the turn that promoted had no room to ask for it, and what asks next is told of it."""
    first, pump = worker.pumps[0], worker.pumps[index]
    assert first._turn()
    exchange = pump.store.exchange
    monkeypatch.setattr(pump.store, "exchange", lambda turn: structs.replace(exchange(turn), wake_in=0.5))
    first._poll_at = first._promote_at = monotonic() + 60
    first.wake.clear()
    pump.look()
    assert pump._turn()
    assert first.wake.is_set()
    first._take_calls(monotonic())
    assert first._look_again is not None
    assert first._look_again <= monotonic() + 0.5


def test_news_of_a_queue_is_a_call_for_that_queue(
    app: App, worker: Worker, asked: Callable[[Pump], list[list[str]]]
) -> None:
    pump = worker.pumps[0]
    turns = asked(pump)
    assert pump._turn()
    worker._on_news("work")
    assert pump._turn()
    pump.look()
    assert pump._turn()
    assert [sorted(queues) for queues in turns] == [["mail", "work"], ["work"], ["mail", "work"]]


def test_news_of_a_queue_that_is_not_known_makes_it_known(app: App, worker: Worker) -> None:
    pump = worker.pumps[0]
    assert pump._turn()
    app.queue("new")
    app.enqueue("new", "other", {})
    worker._on_news("new")
    pump._turn()
    assert "new" in pump._rotation.queues


def test_a_second_look_is_for_the_queues_of_what_was_claimed(app: App, worker: Worker) -> None:
    app.job_types["quick_mail"].enqueue()
    pump = worker.pumps[0]
    assert pump._turn()
    assert pump._looks.keys() == {"mail"}
    pump._looks["mail"] = 0.0
    pump._take_calls(monotonic())
    assert (pump._looks, pump._rotation.unasked) == ({}, {"mail"})


def test_after_a_turn_a_pump_goes_on_if_there_is_more_and_rests_if_not(app: App, worker: Worker) -> None:
    pump = worker.pumps[0]
    assert pump._turn()
    assert not pump._is_more()
    app.job_types["quick_mail"].enqueue_many([{} for _ in range(3)])
    pump.look()
    assert pump._turn()
    assert pump._is_more()  # it got all it asked for
    pump._called = False
    pump._rotation.unasked.clear()
    pump._looks.clear()
    until(lambda: len(worker.hand.finished) == 2, what="they have ended")
    assert pump._is_more()  # nobody wakes a pump that is at a turn
    assert pump._turn()
    assert not worker.hand.finished


@pytest.mark.parametrize("fails", [False, True], ids=["answered", "failed"])
def test_jobs_are_handed_out_before_a_watch_listens_again(
    app: App, worker: Worker, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    told: list[str] = []
    pump = worker.pumps[0]
    monkeypatch.setattr(pump.store, "hush", lambda: told.append("hush"))
    monkeypatch.setattr(pump.store, "listen", lambda: told.append("listen"))
    monkeypatch.setattr(worker, "hand_out", lambda calls: told.append("hand out"))
    app.job_types["quick_mail"].enqueue()
    if fails:
        monkeypatch.setattr(pump.store, "exchange", lambda turn: {}["trouble"])
        with pytest.raises(KeyError, match="trouble"):
            pump._turn()
    else:
        pump._turn()
    assert told == (["hush", "listen"] if fails else ["hush", "hand out", "listen"])


def test_what_has_ended_wakes_one_pump_that_is_not_at_a_turn(worker: Worker) -> None:
    def woken() -> list[bool]:
        for pump in worker.pumps:
            pump.wake.clear()
        worker._wake_pumps()
        return [pump.wake.is_set() for pump in worker.pumps]

    first, second = worker.pumps
    assert woken() == [True, False]
    first.exchanging = True
    assert woken() == [False, True]
    second.exchanging = True
    assert woken() == [True, True]


def test_the_rate_of_a_pump_that_has_nothing_to_do_is_forgotten(worker: Worker) -> None:
    """Else its worker would go on claiming ahead of jobs that have become slow."""
    second = worker.pumps[1]
    worker.hand._rates[1], worker.hand._measured[1] = 5000.0, 0.0
    second._called = False
    assert not second._turn()
    assert worker.hand.reserve(500) == 4


def test_what_was_claimed_in_a_turn_that_failed_after_its_commit_is_claimed_again(app: App, worker: Worker) -> None:
    """The connection is still there, so that nobody hears of it otherwise."""
    job = app.job_types["quick_mail"].enqueue()
    pump = worker.pumps[0]
    store: Any = pump.store
    exchange = store.exchange

    def fail(turn: Any) -> None:
        store.exchange = exchange
        assert exchange(turn).claimed
        raise Unavailable("it took too long")

    store.exchange = fail
    with pytest.raises(Unavailable):
        pump._turn()
    pump.look()
    until(lambda: (pump._turn(), app.get(job.id).final)[1], what="it has run after all")
    assert (app.get(job.id).attempt, app.get(job.id).losses) == (2, 0)


def test_what_an_enqueue_has_claimed_is_not_unheard(app: App, worker: Worker) -> None:
    """Where it claims in its own transaction, a pump may look between the commit and the moment it is taken."""
    took = []

    class Taker:
        offering, may_offer, offer = worker.offering, worker.may_offer, worker.offer
        let_go = worker._end_offers  # by a thread of its own, if the worker has started

        def give(self, claimed: Sequence[Claimed]) -> None:
            worker.pumps[0]._disown()
            took.extend(claimed)
            worker.give(claimed)

    app.store.takers.append(Taker())  # type: ignore[attr-defined]
    job = app.job_types["quick_mail"].enqueue()
    assert [call.id for call in took] == ([job.id] if "sqlite" in str(app.store).lower() else [])
    until(lambda: (worker.pumps[0]._turn(), app.get(job.id).final)[1], what="it has run")
    assert (app.get(job.id).attempt, worker.hand.stale) == (1, 0)


@pytest.fixture
def uninterrupted(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this was another thread than the main one."""
    monkeypatch.setattr(worker.messages, "may_be_interrupted", lambda: False)


@pytest.mark.claim("R1")
@pytest.mark.usefixtures("uninterrupted")
def test_what_was_claimed_for_a_worker_elsewhere_and_not_told_is_handed_back(app: App, worker: Worker) -> None:
    job = app.job_types["quick_mail"].enqueue()
    lent = worker.lend("mail", "quick_mail", 1, None, 0)
    assert lent
    assert lent.pump < 0
    (call,) = worker.store.exchange(lent).claimed
    worker.take(lent, None)
    assert (call.id, worker.hand.count) == (job.id, 0)
    until(lambda: (worker.pumps[0]._turn(), app.get(job.id).final)[1], what="it has run after all")
    assert (app.get(job.id).attempt, app.get(job.id).losses, len(worker.unheard)) == (2, 0, 0)


def test_nothing_is_lent_to_whoever_may_be_interrupted(worker: Worker) -> None:
    """It might never tell what came of it."""
    assert worker.lend("mail", "quick_mail", 1, None, 0) is None


@pytest.mark.usefixtures("uninterrupted")
def test_room_is_lent_for_what_this_worker_would_ask_for(app: App, worker: Worker) -> None:
    assert worker.lend("mail", "unknown", 1, None, 0) is None
    assert worker.lend("mail", "quick_mail", 1, worker.id + 1, 0) is None
    lent = worker.lend("mail", "quick_mail", 10_000, worker.id, 0)
    assert lent
    assert lent.wants[0].room == worker.hand.count == worker.hand.concurrency
    assert worker.lend("mail", "quick_mail", 1, None, 0) is None  # no room is left
    ending = worker.lend("mail", "quick_mail", 5, None, 2)
    assert ending
    assert ending.wants[0].room == 2
    worker.take(ending, ())
    worker.take(lent, ())
    assert worker.hand.count == 0


def test_of_a_database_that_stays_away_it_is_said_once_in_a_while(
    worker: Worker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump, turns = worker.pumps[0], iter([*["gone"] * 3, "", "gone", "elsewhere"])

    def turn() -> bool:
        told = next(turns, None)
        if told is None:
            pump._closing = True
        elif told:
            raise Unavailable(told)
        return True

    monkeypatch.setattr(pump, "_turn", turn)
    monkeypatch.setattr(pump, "_rest", lambda: None)
    monkeypatch.setattr("holdfast.worker.pump.sleep", lambda seconds: None)
    pump.run()
    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records] == ["gone", "gone", "elsewhere"]


def test_a_worker_that_was_called_lost_says_so_when_it_has_come_back(
    worker: Worker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = worker.id
    worker.store.leave(lost)
    with monkeypatch.context() as patch:
        patch.setattr(worker, "join", lambda: worker.store.get(10**9))
        with pytest.raises(NotFound):
            worker._beat(worker.store)
    assert caplog.records == []
    worker._beat(worker.store)
    assert f"Worker {lost} was called lost" in caplog.text
    assert f"It goes on as worker {worker.id}." in caplog.text


def test_a_slot_that_was_kept_for_an_enqueue_in_vain_wakes_who_wanted_it(worker: Worker) -> None:
    pump = worker.pumps[0]
    with worker.offering:
        assert worker.offer("mail")
        assert worker.hand.count == 1
        worker.give([])
    pump.wake.clear()
    worker._end_offers()
    assert not pump.wake.is_set()  # it wanted nothing
    pump._rotation.call()
    worker._end_offers()
    assert (pump.wake.is_set(), worker.hand.count) == (True, 0)


@pytest.mark.parametrize("all_rest", [True, False])
def test_what_was_heard_while_every_queue_is_full_keeps_nobody_awake(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, all_rest: bool
) -> None:
    pump, waits = worker.pumps[1], list[float]()
    if not pump.store.hears_itself:
        pytest.skip("here our own writes are not heard")
    monkeypatch.setattr(pump.wake, "wait", waits.append)
    monkeypatch.setattr(pump, "_all_rest", lambda now: all_rest)
    pump._heard = True
    pump._rest()
    assert (waits[0] > 0.5) is all_rest


def test_a_pump_that_is_closed_does_not_rest_after_its_last_turn(
    app: App, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump, rests, claimed = worker.pumps[0], list[None](), list[Claimed]()
    monkeypatch.setattr(pump, "_rest", lambda: rests.append(None))
    monkeypatch.setattr(worker, "hand_out", claimed.extend)
    job = app.job_types["quick_mail"].enqueue()
    pump._turn()
    worker.hand.take(claimed)
    worker.hand.finished.append(handed_back(claimed[0]))
    monkeypatch.setattr(pump, "_is_more", lambda: False)
    pump._closing = True
    pump.run()
    assert (rests, app.get(job.id).situation) == ([], "loose")
