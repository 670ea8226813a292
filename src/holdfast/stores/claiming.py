"""Claiming from a throttled queue: with the queue to itself a worker looks, chooses by the pure rules, and takes (W3, W4).

- A look is a handful of small questions; how they are sent is the database's affair. Nothing is scanned: the head of
  the line, the jobs of factor 0, the leases, the living workers.
- What `holdfast.jobs.throttle` admits is claimed, each job under a lease of its own that carries its factor and pool.
- Where the head of the line is full of jobs that cannot start (their pool is full, their factor is above the limit) they
  stand aside, sorted by what they wait for, so that a million of them cost the others nothing.
- What is free is left for a job before ours that only others can run, as long as one of them has a slot for it.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from msgspec import Struct, json, structs

from holdfast.clock import Clock
from holdfast.jobs import damage, throttlers
from holdfast.jobs.damage import Damaged
from holdfast.jobs.states import Rescheduled
from holdfast.jobs.throttle import TOLERANCE, Admission, Candidate, Held, Usage, Why, choose, within
from holdfast.jobs.throttlers import Function, Rate, ThrottledJob, Throttler
from holdfast.stores.asking import Asking
from holdfast.stores.breaking import MARK
from holdfast.stores.contract import Claimed, Report, Turn, Want
from holdfast.stores.glancing import Glancing
from holdfast.stores.reader import RowReader, read_throttler, texts_of
from holdfast.stores.statements import RowDict, decode_any

SMALLEST = 16  # candidates that are looked at at least
MOST_CANDIDATES = 1000
ASKED_ABOUT = 200  # most candidates that a throttler function is shown
ROUNDS = 8  # looks in one claim, each after others have stood aside
STRETCH = 20_000  # jobs of the line that are looked through at once for those above the limit
MOST_LANES = 1000  # that are looked at in one claim
ASK_AGAIN = 1.0  # seconds after which a function that refused is asked again, if nothing happened before
LEFT_TO_OTHERS = 1.0  # seconds in which an answer waits for a worker that has its response handler
ASIDE = frozenset({Why.FACTOR, Why.POOL_FACTOR, Why.POOL})


class Lane(Struct, frozen=True, array_like=True):
    """What jobs that stand aside wait for: slots of a pool, and a limit that is not below their factor."""

    pool: str | None = None
    factor: float | None = None


encode_lane = json.Encoder().encode
words_of = lru_cache(maxsize=1024)(lambda text: frozenset(texts_of(text)))


def decode_lane(text: str) -> Lane:
    """A damaged lane is open: its jobs are looked at again."""
    found = damage.read(read_lane, text)
    return Lane() if isinstance(found, Damaged) else found


read_lane = json.Decoder(Lane).decode


class Look(Struct, frozen=True):
    """What was found with the queue to ourselves."""

    want: Want
    types: frozenset[str]  # that were asked for
    window: int
    queue: RowDict
    bucket: RowDict
    hands: Sequence[RowDict]
    usage: Sequence[RowDict]
    lanes: Sequence[RowDict]
    found: Sequence[RowDict]

    @property
    def room(self) -> int:
        """On a throttled queue nothing is claimed ahead."""
        return min(self.want.room, self.want.free)


class Claims(Struct, frozen=True):
    """What came of it. `full`: jobs stand there and may not start, perhaps before `look_in` seconds are over."""

    claimed: Sequence[Claimed] = ()
    full: bool = False
    look_in: float | None = None


class Others(Struct):
    """Who else could run what, and how many jobs more."""

    free: dict[int, int]
    types: dict[int, frozenset[str]]

    def able(self) -> set[str]:
        return {name for worker, types in self.types.items() if self.free[worker] > 0 for name in types}

    def take(self, job_type: str) -> bool:
        """Whether one of them has a slot for a job of the type, which is then gone."""
        for worker, types in self.types.items():
            if self.free[worker] > 0 and job_type.removeprefix(MARK) in types:
                self.free[worker] -= 1
                return True
        return False


class Claiming(Glancing):
    """Adds what a claim from a throttled queue is made of."""

    def __init__(self, instance: str, clock: Clock) -> None:
        super().__init__(instance, clock)
        self.throttlers: dict[str, Asking] = {}  # by queue: the functions that this process has
        self._admitted: dict[str, int] = {}  # by queue: how many were, the last time
        self._able: dict[str, frozenset[str]] = {}  # by queue: the types that could be run, the last time
        self._after_lane: dict[str, str] = {}

    # Looking

    def looks(self, turn: Turn, want: Want) -> tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]:
        """The questions of a look, the lock first, and what of it is known before."""
        queue = want.queue
        throttler = read_throttler(self.queue_row(queue).throttler)
        window = self._window(queue, min(want.room, want.free), throttler)
        types = self._able.get(queue, frozenset()) | frozenset(turn.types) | late_types(turn)
        now = self.time(self.given_now())
        common = {"queue": queue, "now": now}
        usage = {"queue": queue, "keyed": throttlers.is_keyed(throttler)}
        hops = {"queue": queue, "after": self._after_lane.get(queue, ""), "limit": MOST_LANES}
        asked: list[tuple[str, dict[str, Any]]] = [
            ("lock_queue", {"queue": queue}),
            ("hands", {}),
            ("usage", usage),
            ("lanes", hops),
            self._candidates(throttler, {**common, "types": self.words(sorted(types)), "limit": window}),
            ("bucket", common),  # last: its time is that of the starts, and nothing found may be due only after it
        ]
        return asked, {"want": want, "types": types, "window": window}

    def _window(self, queue: str, room: int, throttler: Throttler | None) -> int:
        """How many candidates to look at: one more than could be taken, and not many more than were the last time."""
        if isinstance(throttler, Function):
            return ASKED_ABOUT
        last = self._admitted.get(queue)
        return max(1, min(room + 1, MOST_CANDIDATES if last is None else max(SMALLEST, 2 * last)))

    def _candidates(self, throttler: Throttler | None, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if not throttlers.is_keyed(throttler):
            return "candidates", params
        return "candidates_by_key", {**params, "path": self.payload_path(throttlers.path_of(throttler))}

    @abstractmethod
    def payload_path(self, names: Sequence[str]) -> Any:
        """Where in a payload something is, as a parameter."""

    def look(self, turn: Turn, want: Want) -> Look:
        """Have the queue to ourselves until the transaction ends, and look."""
        asked, known = self.looks(turn, want)
        return self.looked([self.rows(name, params, want.queue) for name, params in asked], known)

    def looked(self, answers: Sequence[Sequence[RowDict]], known: Mapping[str, Any]) -> Look:
        queue, hands, usage, lanes, found, bucket = answers
        return Look(**known, queue=queue[0], bucket=bucket[0], hands=hands, usage=usage, lanes=lanes, found=found)

    # Claiming

    def claim_throttled(self, turn: Turn, look: Look) -> Claims:
        """What fits now, in claim order. Nothing is claimed for a worker that was called lost or lacks the function."""
        name = look.want.queue
        if look.queue["throttler"] != self.queue_row(name).throttler:
            self._read_queues()
            look = self.look(turn, look.want)
        throttler = read_throttler(look.queue["throttler"])
        living = any(hand["id"] == turn.worker for hand in look.hands)
        if look.queue["paused"] or look.room <= 0 or not living:
            return Claims()
        if isinstance(throttler, Function):
            asking = self.throttlers.get(name)
            if asking is None or asking.name != throttler.name:
                return Claims()
            if asking.rests_for:
                return Claims(full=True, look_in=asking.rests_for)
        return _Claim(self, turn, look, throttler).made()

    def candidate_rows(
        self, queue: str, throttler: Throttler | None, types: Iterable[str], limit: int
    ) -> list[RowDict]:
        params = {"queue": queue, "types": self.words(sorted(types)), "limit": limit, "now": self.time(self.now())}
        name, asked = self._candidates(throttler, params)
        return list(self.rows(name, asked, queue))

    def usage_of(
        self, queue: str, limit: float, throttler: Throttler | None, leases: Sequence[RowDict], bucket: RowDict
    ) -> Usage:
        """What the held and waiting jobs of a queue use, and what a rate has left."""
        used, pools = 0.0, dict[str, float]()
        for row in leases:
            used += row["used"] or 0.0
            if row["pool"] is not None:
                pools[row["pool"]] = pools.get(row["pool"], 0.0) + (row["used"] or 0.0)
        if any(row["bare"] for row in leases):
            for factor, pool in self.bare_usage(queue, throttler):
                used += factor
                if pool is not None:
                    pools[pool] = pools.get(pool, 0.0) + factor
        tokens = 0.0
        if isinstance(throttler, Rate):
            tokens = throttlers.refill(throttler, bucket["tokens"], bucket["elapsed"] or 0.0)
        return Usage(limit, used, throttler, pools, tokens)

    def bare_usage(self, queue: str, throttler: Throttler | None) -> list[tuple[float, str | None]]:
        """Factor and pool of each held or waiting job whose lease does not say it."""
        keyed = throttlers.is_keyed(throttler)
        params = {"queue": queue, "keyed": keyed, "path": self.payload_path(throttlers.path_of(throttler))}
        return [(row["throttle_factor"], pool_in(throttler, row)) for row in self.rows("bare_usage", params, queue)]

    def lane_heads(self, queue: str, lanes: Sequence[str], types: Iterable[str], limit: int) -> list[RowDict]:
        """The first jobs in claim order among those that stand aside in these lanes."""
        params = {"queue": queue, "lanes": self.words(lanes), "types": self.words(sorted(types)), "limit": limit}
        return list(self.rows("lane_heads", {**params, "now": self.time(self.now())}, queue))

    @abstractmethod
    def put_aside(self, queue: str, rows: Sequence[RowDict], lanes: Sequence[str]) -> None:
        """Out of the line, each into its lane."""

    def put_heavier_aside(self, queue: str, limit: float) -> None:
        """Out of the head of the line what is above the limit, but for types whose next probe is looked for there."""
        staying = sorted(name for each in self.adaptive for name in (each, MARK + each))
        params = {"queue": queue, "limit": STRETCH, "most": limit * (1 + TOLERANCE), "staying": self.words(staying)}
        self.run("put_heavier_aside", params)
        self.run("drop_heavier", params)

    @abstractmethod
    def claim_these(
        self, turn: Turn, queue: str, chosen: Sequence[RowDict], pools: Mapping[int, str | None], now: Any
    ) -> list[Claimed]:
        """Let chosen jobs enter running, each under a lease of its own that carries its factor and pool."""

    def throttled_jobs(self, rows: Iterable[RowDict]) -> list[ThrottledJob]:
        """Jobs as a throttler function sees them."""
        return [
            ThrottledJob(
                row["id"],
                row["job_type"],
                row["job_key"],
                RowReader(row).table("payload"),
                row["throttle_factor"],
                row["priority"],
                self._known(row["scheduled_run_time"]),
            )
            for row in rows
        ]

    def note_look(self, queue: str, able: frozenset[str], admitted: int, after_lane: str) -> None:
        """What the next look begins with."""
        self._able[queue], self._admitted[queue], self._after_lane[queue] = able, admitted, after_lane


class _Claim:
    """One claim from one queue."""

    def __init__(self, store: Claiming, turn: Turn, look: Look, throttler: Throttler | None) -> None:
        self.store, self.turn, self.look, self.throttler = store, turn, look, throttler
        self.queue = look.want.queue
        self.own = frozenset(turn.types)
        self.late = dict(turn.late)
        self.asked = self.own | self.late.keys()
        self.unheard: dict[int, float] = {}  # answers left to others: for how many seconds more
        self.others = self._others()
        self.window = look.window
        self.found = list(look.found)
        self.foreign: frozenset[str] = frozenset()  # types that only others could run now
        self.more = True  # there may be due jobs that were not seen
        self.past_foreign = False  # what stands behind those was looked for
        self.moved = False  # some stood aside just now
        self.unfinished = False  # so many stood in the way that the next claim has to go on
        self.failed_for = 0.0  # seconds that the function rests, because it failed

    def made(self) -> Claims:
        if self.store.hold_back(self.queue, self.found):
            self.found = self._line(self.look.types)
        able = self._able()
        usage = self._usage()
        heads = self._heads(usage, able)
        for _ in range(ROUNDS):
            rows, candidates = self._candidates(heads)
            usage = self._asked(usage, rows)
            choice = choose(usage, candidates)
            mine = self._mine(rows, choice)
            if not self._look_further(rows, candidates, choice, mine):
                break
        else:
            self.unfinished = True
        self.store.note_look(self.queue, able, len(choice.admitted), self._after_lane())
        self._reschedule(choice)
        claimed = self._take(usage, candidates, mine)
        self._tell_others(rows, choice, mine)
        return self._claims(claimed, choice, len(mine))

    # Who could run what

    def _others(self) -> Others:
        held: dict[int, int] = {}
        for row in self.look.usage:
            held[row["worker"]] = held.get(row["worker"], 0) + row["held"]
        free, types = {}, {}
        for hand in self.look.hands:
            serves = hand["every_queue"] or self.queue in words_of(hand["queues"])
            works = not hand["stopping"] and "run" in words_of(hand["duties"])
            if hand["id"] != self.turn.worker and serves and works:
                free[hand["id"]] = hand["concurrency"] - held.get(hand["id"], 0)
                types[hand["id"]] = words_of(hand["types"])
        return Others(free, types)

    def _able(self) -> frozenset[str]:
        """The names under which due jobs could be run now by somebody; looks again if some of them were not asked for."""
        known = {name.removeprefix(MARK) for name in self.own}
        foreign = self.others.able() - known
        self.foreign = frozenset(self.store.claimable(foreign)) if foreign else frozenset()
        able = self.asked | self.foreign
        if not able <= self.look.types or any(row["job_type"] not in able for row in self.found):
            self.found = self._line(able)
        return able

    def _line(self, types: Iterable[str], limit: int | None = None) -> list[RowDict]:
        """Without tasks that somebody holds: they make room for those behind them."""
        while True:
            wanted = self.window if limit is None else limit
            found = self.store.candidate_rows(self.queue, self.throttler, types, wanted)
            if not self.store.hold_back(self.queue, found):
                return found

    def _usage(self) -> Usage:
        look = self.look
        return self.store.usage_of(self.queue, look.queue["throttle_limit"], self.throttler, look.usage, look.bucket)

    # What stands in line

    def _heads(self, usage: Usage, able: Iterable[str]) -> list[RowDict]:
        """Of the lanes in which something could start now."""
        lanes = [row["lane"] for row in self.look.lanes if is_open(decode_lane(row["lane"]), usage)]
        if not lanes:
            return []
        heads = self.store.lane_heads(self.queue, lanes, able, self.look.room + 1)
        held = self.store.hold_back(self.queue, heads)
        return [row for row in heads if row["id"] not in held]

    def _candidates(self, heads: Sequence[RowDict]) -> tuple[list[RowDict], list[Candidate]]:
        """The head of the line and of the open lanes in claim order, each job once."""
        rows = list({row["id"]: row for row in [*self.found, *heads]}.values())
        if len(rows) != len(self.found) or heads or any(row["throttle_factor"] == 0 for row in rows):
            rows.sort(key=place_in_line)
        self.unheard = self._unheard(rows)
        others = Others(dict(self.others.free), self.others.types)
        runnable = [self._is_own(row) or others.take(row["job_type"]) for row in rows]
        pools: Sequence[str | None] = [None] * len(rows)
        if throttlers.is_keyed(self.throttler):
            pools = [decode_lane(row["lane"]).pool if "lane" in row else pool_in(self.throttler, row) for row in rows]
        return rows, [
            Candidate(row["id"], row["throttle_factor"], able, pool)
            for row, able, pool in zip(rows, runnable, pools, strict=True)
        ]

    def _unheard(self, rows: Sequence[RowDict]) -> dict[int, float]:
        """Answers that have just become due, for a response handler that our code lacks. A probe, which stands there under another name, is
        none of them: others wait for it.
        """
        fresh = {row["id"]: self._seconds_left(row) for row in rows if row["job_type"] in self.turn.deaf}
        ids = sorted(job_id for job_id, left in fresh.items() if left > 0)
        found = self.store.rows("answers_due", {"ids": self.store.pack(ids)}, self.queue) if ids else ()
        return {row["id"]: fresh[row["id"]] for row in found}

    def _seconds_left(self, row: RowDict) -> float:
        since = self._now() - self.store._known(row["ready_time"])
        return LEFT_TO_OTHERS - float(since.total_seconds())

    def _is_own(self, row: RowDict) -> bool:
        """Whether we may take it: jobs of some types only when they were left by those who are preferred."""
        if row["id"] in self.unheard:
            return False
        if row["job_type"] in self.own or not self.late:
            return row["job_type"] in self.own
        seconds = self.late.get(row["job_type"])
        return seconds is not None and self.store._known(row["ready_time"]) <= self._now() - timedelta(seconds=seconds)

    def _asked(self, usage: Usage, rows: Sequence[RowDict]) -> Usage:
        """What the queue's function says, where it has one; if it fails nothing is admitted."""
        if not isinstance(self.throttler, Function) or not rows:
            return usage
        store, asking = self.store, self.store.throttlers[self.queue]
        shown = {row["id"]: row for row in rows[:ASKED_ABOUT]}
        running = store.throttled_jobs(store.rows("running", {"queue": self.queue}, self.queue))
        found = {row["id"]: row for row in store.rows("jobs_by_id", {"ids": store.pack(sorted(shown))})}
        candidates = store.throttled_jobs(found[job_id] for job_id in shown if job_id in found)
        verdicts = asking.ask(running, candidates)
        if verdicts is None:
            self.failed_for = asking.rests_for
        given = {job.id: verdict for job, verdict in zip(candidates, verdicts or (), strict=False)}
        return structs.replace(usage, verdicts=given, now=self._now())

    def _now(self) -> Any:
        return self.store._known(self.look.bucket["now"])

    def _mine(self, rows: Sequence[RowDict], choice: Admission) -> list[RowDict]:
        admitted = set(choice.admitted)
        return [row for row in rows if row["id"] in admitted and self._is_own(row)][: self.look.room]

    def _look_further(
        self, rows: Sequence[RowDict], candidates: Sequence[Candidate], choice: Admission, mine: Sequence[RowDict]
    ) -> bool:
        """Whether there may be more behind what was seen, and then to have seen it. What cannot start stands aside for it."""
        self.more = sum("lane" not in row for row in rows) >= self.window
        enough = len(mine) >= self.look.room or choice.reserved_for is not None
        if enough or not self.more or isinstance(self.throttler, Function):
            return False
        if len(choice.admitted) == len(mine) == len(rows):
            before, self.window = self.window, min(4 * self.window, self.look.room + 1, MOST_CANDIDATES)
            grew = self.window > before
        else:
            grew = self._step_aside(rows, candidates, choice)
        if not grew and self.foreign and not self.past_foreign:
            grew = self.past_foreign = True  # the head is full of jobs that only others run, more than they have slots
        if grew:
            self.found = self._line(self.asked | self.foreign) + (self._line(self.asked) if self.past_foreign else [])
        return grew

    def _step_aside(self, rows: Sequence[RowDict], candidates: Sequence[Candidate], choice: Admission) -> bool:
        moved, lanes = [], []
        for row, candidate in zip(rows, candidates, strict=True):
            lane = _lane(candidate, choice.held.get(candidate.id))
            # A type with a breaker stays in line, where its next probe is looked for.
            if lane is not None and "lane" not in row and row["job_type"].removeprefix(MARK) not in self.store.adaptive:
                moved.append(row)
                lanes.append(encode_lane(lane).decode())
        if moved:
            self.moved = True
            self.store.put_aside(self.queue, moved, lanes)
            limit = self.look.queue["throttle_limit"]
            if limit >= 1 and len(moved) >= SMALLEST and not throttlers.is_keyed(self.throttler):
                self.store.put_heavier_aside(self.queue, limit)
        self.window = MOST_CANDIDATES  # there may be many more of them
        return bool(moved)

    # Taking

    def _reschedule(self, choice: Admission) -> None:
        """Jobs that the function wants later; one that it wants in the past is only refused."""
        now = self._now()
        later = {job_id: held.at for job_id, held in choice.held.items() if held.at is not None and held.at > now}
        if later:
            self.store.apply([Report(job_id, Rescheduled(at)) for job_id, at in later.items()])

    def _take(self, usage: Usage, candidates: Sequence[Candidate], mine: Sequence[RowDict]) -> list[Claimed]:
        pools = {candidate.id: candidate.pool for candidate in candidates}
        now = self.look.bucket["now"]  # of the tokens and of the starts, so that the rate is exact
        claimed = self.store.claim_these(self.turn, self.queue, mine, pools, now) if mine else []
        set_back = (self.look.bucket["elapsed"] or 0.0) < 0  # the clock was: what is left counts from now on
        if isinstance(self.throttler, Rate) and (claimed or set_back):
            started = {call.id for call in claimed}
            tokens = usage.tokens - sum(row["throttle_factor"] for row in mine if row["id"] in started)
            self.store.run("put_bucket", {"queue": self.queue, "tokens": tokens, "now": now})
        return claimed

    def _tell_others(self, rows: Sequence[RowDict], choice: Admission, mine: Sequence[RowDict]) -> None:
        """There is room under the limit that somebody else may fill. Of an answer they have heard, and of room only if we made it: or
        those who cannot tell it to a response handler would wake each other.
        """
        left = set(choice.admitted) - {row["id"] for row in mine}
        if not (self.turn.done or self.turn.reports):
            left -= self.unheard.keys()
        told = any(self.others.take(row["job_type"]) for row in rows if row["id"] in left)
        if not told and self.foreign and self.more and choice.reserved_for is None:
            told = bool(self._line(self.foreign, 1))
        if told:
            self.store.announce([self.queue])

    def _claims(self, claimed: Sequence[Claimed], choice: Admission, count: int) -> Claims:
        if self.failed_for:
            return Claims(claimed, True, self.failed_for)
        if self.unfinished:
            return Claims(claimed, True, 0.0)
        held = [each for each in choice.held.values() if each.why is not Why.UNHANDLED]
        waits = [each.seconds for each in held if each.seconds is not None]
        waits += [ASK_AGAIN] if any(each.why is Why.REFUSED for each in held) else []
        waits += self.unheard.values()
        full = bool(held or self.look.lanes or self.moved or self.unheard) and count < self.look.room
        return Claims(claimed, full, min(waits, default=None) if full else None)

    def _after_lane(self) -> str:
        """With more lanes than one claim looks at, each claim goes on where the one before stopped."""
        return self.look.lanes[-1]["lane"] if len(self.look.lanes) >= MOST_LANES else ""


def late_types(turn: Turn) -> frozenset[str]:
    return frozenset(name for name, _ in turn.late)


def is_open(lane: Lane, usage: Usage) -> bool:
    """Whether a job that stands aside in this lane could start now."""
    size = throttlers.size_of(usage.throttler, lane.pool)
    if lane.factor is not None:
        above = usage.limit >= 1 and not within(usage.limit, lane.factor)
        if above or (size is not None and not within(size, lane.factor)):
            return False
    return size is None or usage.pools.get(lane.pool or "", 0.0) < size * (1 - TOLERANCE)


def pool_in(throttler: Throttler | None, row: RowDict) -> str | None:
    """The pool of a row that was asked for with the value of the throttler's key."""
    if not throttlers.is_keyed(throttler):
        return None
    value = None if row["value"] is None else damage.read(decode_any, row["value"])
    return throttlers.pool_of_value(throttler, None if isinstance(value, Damaged) else value)


def _lane(candidate: Candidate, held: Held | None) -> Lane | None:
    """Where a candidate stands aside; None: it stays in line."""
    if held is None:
        return None
    if held.why is Why.POOL or (held.why is Why.RESERVED and held.pool is not None):
        return Lane(candidate.pool)
    return Lane(candidate.pool, candidate.throttle_factor) if held.why in ASIDE else None


def place_in_line(row: RowDict) -> tuple[float, float, int]:
    return row["major"], row["minor"], row["id"]
