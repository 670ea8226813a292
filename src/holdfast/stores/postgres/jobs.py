"""The store on PostgreSQL, and the worker's turn: one pipeline, which is one transaction."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import psycopg
from msgspec import Struct, structs

from holdfast.clock import Clock, monotonic
from holdfast.errors import Unavailable
from holdfast.stores.breaking import sooner
from holdfast.stores.claiming import Look
from holdfast.stores.contract import Claimed, Done, NewJob, Report, Turn, TurnAnswer, Want
from holdfast.stores.postgres.floors import ALL, Line, Start
from holdfast.stores.postgres.items import Mistaken, PostgresItems, Step
from holdfast.stores.postgres.literals import literal, types_literal, words_literal
from holdfast.stores.postgres.wire import Answer, Reply, Wire
from holdfast.stores.running import Expected, makes_items, step_of

PROMOTED = 1000  # most jobs whose time has come that one turn puts in line
MOST_EXPECTED = 100  # ends of lone tasks
MANY = 20  # tasks that end in one turn
CAREFUL_FOR = 5.0  # seconds after a lock could not be had
IN_LINE = frozenset(
    {"claim", "candidates", "candidates_by_key", "lane_heads"}
)  # statements that look for what to claim


class PostgresStore(PostgresItems):
    """One connection to one instance in a PostgreSQL database."""

    pumps = 2
    lot = 250  # while one is stored another one is made, and those before it run and end
    looks_ahead = True

    def __init__(self, conninfo: str, instance: str, clock: Clock, patience: float | None = 5) -> None:
        super().__init__(conninfo, instance, clock, patience)
        self._careful_until = 0.0  # claims pass over jobs that somebody else has locked
        self._has_queues = False  # this turn has the locks of its throttled queues
        self._at_once = False  # this turn is made in two round trips
        self._along: Turn | None = None  # goes along with the next run that is written
        self._sent: tuple[Turn, Sent] | None = None  # went along, and is to be read
        self._expected: dict[int, Expected] = {}  # by job: what its end is going to find
        self._ahead: Ahead | None = None  # was sent off, and is to be compared with what was expected
        self._ending: Wire | None = None  # has sent a commit that is not answered yet

    def another(self, patience: float | None = None) -> "PostgresStore":
        """A store with a connection of its own to the same instance."""
        store = PostgresStore(self.conninfo, self.instance, self.clock, patience)
        store.listeners, store.takers, store.source = self.listeners, self.takers, self.source
        store.throttlers = self.throttlers
        if self.connection.still_within is not None:
            store.give_way(self.connection.still_within, self.connection.lock_within)
        store._told, store.floors = self._told, self.floors
        store._expected, store.counted = self._expected, self.counted
        return store

    @property
    def _careful(self) -> bool:
        return monotonic() < self._careful_until

    def text(self, name: str, queue: str = "", asked: str = "asked_types") -> str:
        return super().text(name, queue, f"{asked} unlocked" if name in IN_LINE and self._careful else asked)

    # Round trips

    def rows_of(self, asked: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[dict[str, Any]]]:
        """In one round trip."""
        if self.connection.lent:
            return super().rows_of(asked)
        return self._asked([(name, params, "") for name, params in asked])

    def rows_and_now(
        self, asked: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> tuple[list[list[dict[str, Any]]], datetime]:
        self._refuse_ahead()
        if self.clock.movable or self._now is not None:
            return self.rows_of(asked), self.now()
        *found, told = self.rows_of([*asked, ("now", {})])
        self._now = told[0]["now"].astimezone(UTC)
        return found, self._now

    def locking(self, reports: Sequence[Report], ids: Any) -> tuple[str, Mapping[str, Any]]:
        """In the tables of their queues, if each report names its own: there may be hundreds of others."""
        queues = {report.queue for report in reports}
        if "" in queues:
            return super().locking(reports, ids)
        return "lock_jobs_of", {"ids": ids, "queues": self.words(sorted(queues))}

    def run_all(self, statements: Sequence[tuple[str, Mapping[str, Any], str]]) -> list[int]:
        """In one round trip."""
        self._refuse_ahead()
        if not statements or self.connection.lent:
            return super().run_all(statements)
        with self._round_trip() as wire:
            replies = [wire.send(self.text(name, queue), params) for name, params, queue in statements]
        return [reply.count for reply in replies]

    def _asked(
        self, asked: Sequence[tuple[str, Mapping[str, Any], str]], along: Turn | None = None
    ) -> list[list[dict[str, Any]]]:
        """Statements with their parameters and queues in one round trip; the rows of each. A turn may go along with them."""
        with self._round_trip() as wire:
            replies = [wire.send(self.text(name, queue), params) for name, params, queue in asked]
            if along is not None:
                self._sent = self._sent or (along, self._send_turn(wire, along, along.wants))
                if self._ahead is not None:
                    wire.send_off()
                    self._compare(wire)
                    if not self.writes_more:
                        self._ending = wire
                        wire.end_later()  # while the commit is on its way to the disk, what it starts is made ready
                if not self.writes_more:
                    wire.send("commit")
        if along is not None and not self.writes_more:
            self.connection.ended = True
        return [reply.dicts() for reply in replies]

    def _refuse_ahead(self) -> None:
        """More has to be known than was thought."""
        if self._ahead is not None:
            raise Mistaken

    # The turn

    def exchange_with_tasks(self, turn: Turn, tasks: Sequence[Done]) -> TurnAnswer:
        """In two round trips, if nothing else is to be done: the first begins the transaction, the second ends it.

        In one, if nothing follows from these ends.
        """
        if not (turn.notes or self.adaptive or self.connection.depth):
            by_type = self._only_counted(turn, tasks)
            with suppress(Mistaken):
                if by_type:
                    return self._exchange_counted(turn, by_type)
            # The key of a new task is taken, or the run was touched by somebody else: that wants a second look.
            with suppress(Mistaken):
                return self._exchange_at_once(turn, tasks)
        return super().exchange_with_tasks(turn, tasks)

    def _only_counted(self, turn: Turn, tasks: Sequence[Done]) -> dict[str, list[Done]]:
        """The tasks by type, if all are items of which more are being made, so that nothing follows from their ends."""
        if turn.reports or self.connection.pooled or any(self.queue_row(want.queue).throttled for want in turn.wants):
            return {}
        found: dict[str, list[Done]] = {}
        for item in tasks:
            call = item.call
            if item.effects or (call.run, (step := step_of(call.job_type))) not in self.counted:
                return {}
            if makes_items(step, call.job_key):
                return {}
            found.setdefault(call.job_type, []).append(item)
        return found

    def _exchange_counted(self, turn: Turn, by_type: Mapping[str, Sequence[Done]]) -> TurnAnswer:
        """In one round trip, so that the run is not locked while Python thinks."""
        rest, now = structs.replace(turn, done=[item for item in turn.done if item.call.run is None]), self.given_now()
        ended = Counter((item.call.run or 0, step_of(job_type)) for job_type, done in by_type.items() for item in done)
        try:
            with self._translated, self.work(begin=False):
                with self.mistaken(), self.connection.wire.pipeline() as wire:
                    wire.send("begin")
                    for job_type, done in by_type.items():
                        queue = done[0].call.queue
                        keys = {"job_type": job_type, "keys": words_literal([item.call.job_key for item in done])}
                        wire.send(self.text("settle_all", queue), self._settle_params(queue, done, now) | keys)
                    self._sent = rest, self._send_turn(wire, rest, rest.wants)
                    counted = [self._send_count(wire, step, count, now) for step, count in sorted(ended.items())]
                    wire.send("commit")
                self.connection.ended = True
                for step, reply in zip(sorted(ended), counted, strict=True):
                    self.count_done(step, reply.dicts()[0]["done"])
                return self._pipeline(rest, rest.wants, ())
        except Mistaken:
            for step in ended:
                self.counted.pop(step, None)
            raise
        finally:
            self._sent = None

    def _send_count(self, wire: Wire, step: Step, ended: int, now: datetime | None) -> Reply:
        run, name = step
        wire.send(self.text("touch_run"), {"run": run, "now": now})
        return wire.send(self.text("count_ended"), {"run": run, "name": name, "ended": ended})

    def _exchange_at_once(self, turn: Turn, tasks: Sequence[Done]) -> TurnAnswer:
        with self._translated, self.lend(turn.worker, len(turn.done)), self.work(begin=False):
            self._at_once = self._to_begin = True
            try:
                answer = self.exchange_inside(turn, tasks)
                if self._ending is not None:
                    self._ending.finish()
                return answer
            except (psycopg.errors.UniqueViolation, psycopg.errors.DivisionByZero) as error:
                raise Mistaken from error  # the key of a new task, or its queue needs a second look
            finally:
                if self._ahead is not None:
                    self._ahead = None
                    self.connection.wire.abandon()
                if self._ending is not None:
                    self._ending.abandon()
                    self._ending = None
                self._at_once, self._to_begin, self._along, self._sent = False, False, None, None

    def expect(self, job_id: int, expected: Expected) -> None:
        self._expected[job_id] = expected
        while len(self._expected) > MOST_EXPECTED:
            with suppress(KeyError, StopIteration, RuntimeError):  # another pump does the same
                del self._expected[next(iter(self._expected))]

    def expected(self, done: Sequence[Done], rest: Turn) -> Expected | None:
        found = self._expected.pop(done[0].call.id, None)
        if len(done) > 1 or done[0].effects or not self._at_once or self.connection.pooled:
            return None
        self.go_along(rest)
        return found if self._along is not None else None

    def settle_ahead(self, by_queue: Mapping[str, Sequence[Done]], expected: Expected) -> None:
        wire, now = self.connection.wire, self.given_now()
        self._to_begin = False
        try:
            wire.send("begin")
            for queue, done in by_queue.items():
                settled = wire.send(self.text("settle", queue), self._settle_params(queue, done, now))
            looks = self.look_at(expected.head.id, expected.steps)
            head, steps = (wire.send(self.text(name), params) for name, params in looks)
            wire.send_off()
        except BaseException:
            wire.abandon()  # or it would go out with the next turn
            raise
        self._ahead = Ahead(expected, settled, head, steps)

    def _compare(self, wire: Wire) -> None:
        """`Mistaken` unless everything is as it was expected to be."""
        assert self._ahead is not None
        expected, settled, head, steps = structs.astuple(self._ahead)
        self._ahead = None
        if not wire.read(4):
            return  # the end of the pipeline tells
        rows = head.dicts()
        if not (
            (settled.fetchone() or (0,))[0] == 1
            and rows
            and expected.is_so(self._head(rows[0], expected.head.shape), self._by_name(steps.dicts()))
        ):
            raise Mistaken

    def go_along(self, turn: Turn) -> None:
        self._along = turn if self._can_go_along(turn) else None

    def _can_go_along(self, turn: Turn) -> bool:
        throttled = any(self.queue_row(want.queue).throttled for want in turn.wants)
        return self._at_once and not (turn.reports or throttled)

    def exchange(self, turn: Turn) -> TurnAnswer:
        """The others go on without queues whose lock cannot be had; who has no patience for ever is told of it (C7)."""
        self._has_queues = False
        try:
            return self._exchange(turn)
        except Unavailable as error:
            if self.connection.depth or self.patience is not None or not error.locked:
                raise  # inside a transaction, which has failed, it is for whoever began that
            was_careful, self._careful_until = self._careful, monotonic() + CAREFUL_FOR
            if self._has_queues and not was_careful:
                return self.exchange(turn)  # it was the lock of a job, which is passed over now
            locked = [want.queue for want in turn.wants if self.queue_row(want.queue).throttled]
            if not locked and (turn.done or turn.reports or not turn.wants):
                raise  # it may be one of these
        wants = [want for want in turn.wants if want.queue not in locked]
        return structs.replace(self._exchange(structs.replace(turn, wants=wants)), locked=locked)

    def _exchange(self, turn: Turn) -> TurnAnswer:
        tasks = [item for item in turn.done if item.call.run is not None]
        if tasks:
            return self.exchange_with_tasks(turn, tasks)
        throttled = [want for want in turn.wants if self.queue_row(want.queue).throttled]
        with self._translated, self.connection.lock:
            wins = self.wins(turn)
            if not (turn.reports or throttled or turn.notes or wins):
                turn, probe_in = self.heed_breakers(turn, self.given_now())
                return _woken_by(self._pipeline(turn, turn.wants, ()), probe_in)
            alone = self.connection.depth == 0
            first = alone and not (
                turn.reports or turn.notes or self.adaptive
            )  # nothing to do before: the pipeline begins the transaction
            with self.work(begin=not first):
                self.write_notes(turn.notes)
                changes = self.apply(turn.reports, wins)
                turn, probe_in = self.heed_breakers(turn, self.given_now())
                wants = [want for want in turn.wants if want not in throttled]
                looked: list[Look] = []
                answer = self._pipeline(turn, wants, changes, () if wins else throttled, looked, first)
                answer = _woken_by(answer, probe_in)
                self._now = None  # what was promoted just now is due now
                if wins:  # breakers are locked before queues
                    self.count_successes(turn.done, answer.stale - sum(change is None for change in changes))
                    looked += [self.look(turn, want) for want in _by_name(throttled)]
                return self._with_throttled(turn, answer, looked)

    def _with_throttled(self, turn: Turn, answer: TurnAnswer, looked: Sequence[Look]) -> TurnAnswer:
        """What the look at each throttled queue came to."""
        claimed, full = list(answer.claimed), dict[str, float | None]()
        self._has_queues = bool(looked)
        for look in looked:
            if not self.clock.movable:
                self._now = look.bucket["now"].astimezone(UTC)  # not earlier than what it found due
            found = self.claim_throttled(turn, look)
            claimed += found.claimed
            if found.full:
                full[look.want.queue] = found.look_in
        return structs.replace(answer, claimed=claimed, full=full)

    def settle_and_look(
        self, by_queue: Mapping[str, Sequence[Done]], looks: Sequence[tuple[str, Mapping[str, Any]]], rest: Turn
    ) -> tuple[set[int], list[list[dict[str, Any]]]]:
        """In one round trip. Where many tasks ended others are claimed before the run is locked, which others wait for."""
        now = self.given_now()
        with self._round_trip() as wire:
            ends = [
                wire.send(self.text("settle", queue), self._settle_params(queue, done, now))
                for queue, done in by_queue.items()
            ]
            if sum(map(len, by_queue.values())) >= MANY and self._can_go_along(rest):
                self._sent = rest, self._send_turn(wire, rest, rest.wants)
            answers = [wire.send(self.text(name), params) for name, params in looks]
        settled: set[int] = set()
        for (queue, done), (end,) in zip(by_queue.items(), (reply.dicts() for reply in ends), strict=True):
            ids = [item.call.id for item in done]
            if end["count"] != len(ids):
                ids = [row["id"] for row in self.rows("settled_here", {"ids": literal(ids)}, queue)]
            settled.update(ids)
            if self._now is None and not self.clock.movable:
                self._now = end["now"].astimezone(UTC)
        found = [reply.dicts() for reply in answers]
        for row in (row for rows in found[1::2] for row in rows):
            if row["items_job"] is not None and not row["all_created"]:
                self.count_done((row["run"], row["name"]), row["created"] - row["undone"])
        return settled, found

    @property
    def may_begin(self) -> bool:
        """Not where the line is full of dead rows: to see that nothing stands there would take long."""
        return not self.floors.pinned

    def put_run(self, run: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], jobs: Sequence[NewJob]) -> list[int]:
        """In one round trip."""
        groups = [list(group) for _, group in groupby(jobs, key=lambda new: new.job_type)]
        asked: list[tuple[str, Mapping[str, Any], str]]
        asked = [("put_step", {**step, "run": run["id"]}, "") for step in steps]
        along, self._along = self._along, None
        whole = along is not None and not self.writes_more
        asked += [
            ("put_run", run, ""),
            *(self._adding_all_alike(alike, True) if whole else self._adding_alike(alike) for alike in groups),
        ]
        found = self._asked(asked, along)[len(asked) - len(groups) :]
        added = self._added_all_alike if whole else self._added_alike
        return [
            job_id
            for alike, rows in zip(groups, found, strict=True)
            for job_id in added(alike, rows) or [job.id for job in self.insert(alike)]
        ]

    def promote_due(self) -> None:
        """Here a turn promotes in the same pipeline in which it claims, and a probe is chosen before."""
        self.run("promote", {"now": self.given_now(), "limit": PROMOTED})

    def payload_path(self, names: Sequence[str]) -> list[str]:
        return list(names)

    def put_aside(self, queue: str, rows: Sequence[Mapping[str, Any]], lanes: Sequence[str]) -> None:
        moved = sorted(zip(rows, lanes, strict=True), key=lambda pair: pair[0]["id"])
        params = {
            "queue": queue,
            "spots": words_literal([row["spot"] for row, _ in moved]),
            "ids": literal([row["id"] for row, _ in moved]),
            "lanes": words_literal([lane for _, lane in moved]),
        }
        self.run("put_aside", params)

    def claim_these(
        self, turn: Turn, queue: str, chosen: Sequence[Mapping[str, Any]], pools: Mapping[int, str | None], now: Any
    ) -> list[Claimed]:
        ids = sorted(row["id"] for row in chosen)
        params = {
            "queue": queue,
            "worker": turn.worker,
            "pump": turn.pump,
            "spots": words_literal([row["spot"] for row in chosen if "lane" not in row]),
            "aside": words_literal([row["spot"] for row in chosen if "lane" in row]),
            "ids": literal(ids),
            "pools": words_literal([pools[job_id] for job_id in ids])
            if any(pool is not None for pool in pools.values())
            else None,
            "now": now,
        }
        text = self.text("claim_these", queue).encode()
        return self._claimed(queue, self.connection.database.execute(text, params, binary=True))[0]

    def _pipeline(
        self,
        turn: Turn,
        wants: Sequence[Want],
        changes: Sequence[Any],
        throttled: Sequence[Want] = (),
        looked: list[Look] | None = None,
        begin: bool = False,
    ) -> TurnAnswer:
        """Settle, promote and claim; of throttled queues a look is taken, for a claim in the same transaction."""
        if self._sent is not None and self._sent[0] is turn:
            sent, self._sent = self._sent[1], None
        else:
            with self.connection.wire.pipeline() as wire:
                if begin:
                    wire.send("begin")
                if begin or not self.connection.depth:
                    self.connection.pin(wire)
                sent = self._send_turn(wire, turn, wants, throttled)
        for known, replies in sent.looks:
            assert looked is not None
            looked.append(self.looked([reply.dicts() for reply in replies], known))
        claimed = [call for want, reply in sent.claims for call in self._behind_held(want, reply, sent.common)]
        look_in = self._learn_floors(sent) if self.floors.pinned else None
        count = sum((reply.fetchone() or (0,))[0] for reply in sent.settled)
        stale = len(turn.done) - count + sum(change is None for change in changes)
        promoted, wake_in = (sent.promoted.fetchone() or (0, None)) if sent.promoted else (0, None)
        wake_in = 0.0 if promoted == PROMOTED else wake_in
        return TurnAnswer(claimed, stale, changes, wake_in, look_in=look_in, promoted=promoted)

    def _send_turn(self, wire: Wire, turn: Turn, wants: Sequence[Want], throttled: Sequence[Want] = ()) -> "Sent":
        """The statements of a turn, in the pipeline that is open."""
        now = self.given_now()
        by_queue: dict[str, list[Done]] = {}
        for item in turn.done:
            by_queue.setdefault(item.call.queue, []).append(item)
        common: dict[str, Any] = {"worker": turn.worker, "pump": turn.pump, "now": now}
        common["types"] = types_literal(turn.types)
        asked = "asked_types"
        if turn.late:
            asked = "asked_or_late_types"
            names, seconds = zip(*turn.late, strict=True)
            common |= {"late": words_literal(names), "seconds": literal(seconds)}
        if turn.deaf:
            asked += " heard"
            common["deaf"] = words_literal(turn.deaf)
        settled = [
            wire.send(self.text("settle", queue), self._settle_params(queue, items, now))
            for queue, items in by_queue.items()
        ]
        if turn.ended_leases:
            wire.send(self.text("end_leases"), {"ids": literal(turn.ended_leases)})
        for queue in sorted(by_queue.keys() - {want.queue for want in turn.wants}):
            if self.queue_row(queue).throttled:  # room is made that we do not fill
                wire.send(self.text("tell"), {"channel": self.channel, "queue": queue})
        promoted = wire.send(self.text("promote"), {"now": now, "limit": PROMOTED}) if turn.promote else None
        starts = [ALL for _ in wants]
        if self.floors.pinned:
            starts = [self.floors.begin((want.queue, common["types"])) for want in wants]
        looks_back = self.floors.pinned and any(start.looks_back for start in starts)
        size = wire.send(self.text("line_size")) if looks_back else None
        claims = [
            (
                want,
                wire.send(
                    self.text("claim", want.queue, f"{asked} {start.asked}"),
                    {**common, "queue": want.queue, "room": want.room, **start.params},
                ),
            )
            for want, start in zip(wants, starts, strict=True)
        ]
        looked = wire.send(self.text("looked")) if size is not None else None
        looks = [self._send_look(wire, turn, want) for want in _by_name(throttled)]
        return Sent(common, settled, promoted, claims, looks, starts, size, looked)

    def _learn_floors(self, sent: "Sent") -> float | None:
        """Seconds until there may be something where they did not look, if there were such."""
        look_in, size, took = None, None, 0.0
        if sent.size is not None and sent.looked is not None:
            (began,), (ended,) = sent.size.dicts(), sent.looked.dicts()
            size, took = began["pages"], (ended["at"] - began["at"]).total_seconds()
        for (want, reply), start in zip(sent.claims, sent.starts, strict=True):
            line: Line = want.queue, sent.common["types"]
            order = BY_TIME if self.queue_row(want.queue).claim_order == "schedule" else BY_PRIORITY
            places = [order(row) for row in reply.fetchall() if row[0] is not None]
            self.floors.learn(line, start, max(places, default=None), len(places) == want.room, size, took)
            if start.place is not None:
                look_in = sooner(look_in, 0.0 if start.looks_back else self.floors.look_in(line))
        return look_in

    def _send_look(self, wire: Wire, turn: Turn, want: Want) -> tuple[dict[str, Any], list[Reply]]:
        """The questions of a look, in the pipeline that is open; each sees what was committed before the lock was had."""
        asked, known = self.looks(turn, want)
        return known, [wire.send(self.text(name, want.queue), params) for name, params in asked]

    def _behind_held(self, want: Want, cursor: Answer, common: Mapping[str, Any]) -> list[Claimed]:
        """What was claimed; if tasks that somebody holds were in the way, also what stands behind them."""
        found, held = self._claimed(want.queue, cursor)
        while held and len(found) < want.room:
            self.connection.begin_again()
            self.clear_line(want.queue)
            params = {**common, "queue": want.queue, "room": want.room - len(found)}
            text = self.text("claim", want.queue).encode()
            more, held = self._claimed(want.queue, self.connection.database.execute(text, params, binary=True))
            found += more
        return found

    def _claimed(self, queue: str, cursor: Answer) -> tuple[list[Claimed], bool]:
        return claimed_of(cursor, queue, self.queue_row(queue).claim_order == "schedule")

    def _settle_params(self, queue: str, items: Sequence[Done], now: datetime | None) -> dict[str, Any]:
        items = sorted(items, key=job_id_of)
        results = None
        if any(item.result is not None for item in items):
            results = words_literal([item.result for item in items])
        return {
            "queue": queue,
            "keyed": any(item.call.job_key is not None for item in items),
            "ids": literal([item.call.id for item in items]),
            "attempts": literal([item.call.attempt for item in items]),
            "seconds": literal([item.seconds for item in items]),
            "results": results,
            "now": now,
        }


class Sent(Struct, frozen=True):
    """A turn on its way: what its statements were told in common, and their answers as they come."""

    common: dict[str, Any]
    settled: list[Reply]
    promoted: Reply | None
    claims: list[tuple[Want, Reply]]
    looks: list[tuple[dict[str, Any], list[Reply]]]
    starts: list[Start]  # where each claim looks
    size: Reply | None  # of the line, before they looked, if one looks back
    looked: Reply | None  # when they had


class Ahead(Struct, frozen=True):
    """An end of a task that was sent off before it was known what it finds, and the answers that will tell."""

    expected: Expected
    settled: Reply
    head: Reply
    steps: Reply


def _woken_by(answer: TurnAnswer, probe_in: float | None) -> TurnAnswer:
    """The worker looks again when a breaker wants to be probed, if that is sooner."""
    return answer if probe_in is None else structs.replace(answer, wake_in=sooner(answer.wake_in, probe_in))


def _by_name(wants: Sequence[Want]) -> list[Want]:
    """Everybody locks queues in the same order."""
    return sorted(wants, key=lambda want: want.queue)


def job_id_of(item: Done) -> int:
    return item.call.id


def claimed_of(cursor: Answer, queue: str, by_time: bool) -> tuple[list[Claimed], bool]:
    """The claimed jobs in claim order, UPDATE … RETURNING gives none; and whether tasks were met that somebody holds."""
    rows = cursor.fetchall()
    held = bool(rows) and rows[-1][0] is None
    if held:
        rows.pop()
    rows.sort(key=BY_TIME if by_time else BY_PRIORITY)
    return [Claimed(queue, row[12], *row[:10]) for row in rows], held


BY_PRIORITY, BY_TIME = itemgetter(10, 11, 0), itemgetter(11, 10, 0)
