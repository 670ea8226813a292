"""Breakers and retry budgets of the types with adaptive retry, shared by all workers (R6).

- What they learn is decided by `holdfast.jobs.breaker` and written in the transaction that ends the attempt.
- Locks are taken in the order job rows, breakers by name, queues: whoever counts waits, whoever chooses a probe does not.
- While a breaker is not closed, claims ask for its type under another name, which only the probe has in `ready`. So
  claims know nothing of breakers, and a probe obeys pause, limit, windows and labels like any job.
"""

import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from msgspec import structs

from holdfast.clock import Clock
from holdfast.errors import NotFound
from holdfast.jobs import breaker as breaking
from holdfast.jobs import retry
from holdfast.jobs.breaker import Breaker, BreakerState
from holdfast.jobs.retry import Adaptive
from holdfast.jobs.states import Answered, Change, Decided, Happening, Raised, Succeeded, Waited
from holdfast.stores.contract import Done, QueueRow, Turn, TypeRow
from holdfast.stores.noting import Noting
from holdfast.stores.reader import read_policy
from holdfast.stores.statements import BATCH, RowDict

logger = logging.getLogger("holdfast.breaker")
MARK = "!"  # before the type of a probe in `ready`; no type's name can begin so
FULL = 10 * BATCH  # most jobs that are parked or brought back in one go
NO_WINS: Mapping[str, int] = MappingProxyType({})
TELLING = (Raised, Decided, Succeeded, Answered, Waited)


class Breaking(Noting):
    """Adds the verbs about breakers."""

    def __init__(self, instance: str, clock: Clock) -> None:
        super().__init__(instance, clock)
        self._adaptive: dict[str, Adaptive] | None = None

    # Which types have one

    @property
    def adaptive(self) -> Mapping[str, Adaptive]:
        """The types with adaptive retry, as they were when types were read last."""
        if self._adaptive is None:
            self._read_adaptive()
        return self._adaptive or {}

    def _read_types(self) -> dict[str, TypeRow]:
        found = super()._read_types()
        self._adaptive = adaptive_among(found.values())
        return found

    def _learn_types(self, rows: Sequence[RowDict]) -> dict[str, TypeRow]:
        found = super()._learn_types(rows)
        others = {name: policy for name, policy in self.adaptive.items() if name not in found}
        self._adaptive = others | adaptive_among(found.values())
        return found

    def _read_adaptive(self) -> None:
        self._adaptive = adaptive_among(self._type_of(row) for row in self.rows("adaptive_types"))

    def queues(self) -> Sequence[QueueRow]:
        """Every queue. Adaptive types are read with them: so a worker learns which of them became so."""
        with self.lone():
            self._read_adaptive()
            return self._read_queues()

    # Looking and acting

    def breakers(self) -> Sequence[Breaker]:
        """One for each type with adaptive retry."""
        with self.work(write=False):
            self._read_adaptive()
            kept = {row["job_type"]: self._breaker_of(row) for row in self.rows("breakers")}
            return [kept.get(name) or Breaker(name) for name in sorted(self.adaptive)]

    def breaker(self, job_type: str) -> Breaker | None:
        """The breaker of a type; None if the type has none."""
        with self.work(write=False):
            self._read_adaptive()
            return self._breaker(job_type)

    def _breaker(self, job_type: str) -> Breaker | None:
        if job_type not in self.adaptive:
            return None
        for row in self.rows("breaker", {"job_type": job_type}):
            return self._breaker_of(row)
        return Breaker(job_type)

    def reset_breaker(self, job_type: str, actor: str) -> Breaker:
        """Close the breaker and forget what it counted, as if nothing had happened; `NotFound` if there is none."""
        with self.work():
            self._read_adaptive()
            if job_type not in self.adaptive:
                raise NotFound(
                    f"Job type `{job_type}` of instance `{self.instance}` has no breaker: only a type that is declared "
                    "with retry=Adaptive(…) has one. `holdfast queues breakers` lists them."
                )
            before = self.lock_breakers([job_type])
            self._keep(Breaker(job_type))
            self._let_go(before[job_type])
            self._audit(actor, "reset_breaker", queue=self._queue_of(job_type), detail=job_type)
            return Breaker(job_type)

    # Counting

    def lock_breakers(self, job_types: Iterable[str]) -> dict[str, Breaker]:
        """Those of the adaptive ones among the types, to be changed in this transaction."""
        wanted = sorted(self.adaptive.keys() & set(job_types))
        if not wanted:
            return {}
        params = {"types": self.words(wanted)}
        found = self.rows("lock_breakers", params)
        if len(found) < len(wanted):
            for job_type in wanted:
                self.run("add_breaker", {"job_type": job_type})
            found = self.rows("lock_breakers", params)
        return {row["job_type"]: self._breaker_of(row) for row in found}

    def lessons(self, told: Sequence[str], wins: Mapping[str, int]) -> "Lessons":
        """What is to be learned from one report for each of the types in `told`, and as many successes as in `wins`."""
        before = self.lock_breakers({*told, *wins}) if told and self.adaptive else {}
        return Lessons(before, Counter(told), wins)

    def wins(self, turn: Turn) -> Mapping[str, int]:
        """The plain successes of a turn by type, of adaptive types only."""
        if not (self.adaptive and (turn.done or turn.won)):
            return NO_WINS
        names = [*(item.call.job_type for item in turn.done), *turn.won]
        return Counter(name for name in names if name in self.adaptive)

    def count_successes(self, done: Sequence[Done], stale: int) -> None:
        """Plain successes of a turn, once for each adaptive type; those that were stale told nothing."""
        ended = {item.call.id: item for item in done if item.call.job_type in self.adaptive}
        if not ended:
            return
        if stale:
            rows = self.rows("jobs_by_id", {"ids": self.pack(sorted(ended))})
            won = {row["id"] for row in rows if row["outcome"] == "success"}
            ended = {job_id: item for job_id, item in ended.items() if job_id in won}
        by_type: dict[str, list[int]] = {}
        for job_id, item in ended.items():
            by_type.setdefault(item.call.job_type, []).append(job_id)
        before, now = self.lock_breakers(by_type), self.now()
        after = {
            name: breaking.succeeded(
                each, len(by_type[name]), any(breaking.is_probe(each, job) for job in by_type[name]), now
            )
            for name, each in before.items()
        }
        self.keep_breakers(before, after)

    def keep_breakers(self, before: Mapping[str, Breaker], after: Mapping[str, Breaker]) -> None:
        """Write what was learned; opening and closing is told to people, and workers hear of the time of the next probe."""
        for job_type, breaker in after.items():
            was = before[job_type]
            if breaker == was:
                continue
            self._keep(breaker)
            if was.closed and not breaker.closed:
                self._tell_opened(breaker)
            elif breaker.closed and not was.closed:
                self._let_go(was)
                self._audit("holdfast", "close_breaker", queue=self._queue_of(job_type), detail=job_type)
                logger.warning("The breaker of job type `%s` is closed: a job of it succeeded.", job_type)
            if breaker.state is BreakerState.OPEN and was.state is not BreakerState.OPEN:
                self.announce([self._queue_of(job_type)])

    def _tell_opened(self, breaker: Breaker) -> None:
        run = f"{breaker.failures} failures in a row" if breaker.failures > 1 else "a failure"
        detail = f"{breaker.job_type}: {run}; next probe {breaker.probe_time}"
        self._audit("holdfast", "open_breaker", queue=self._queue_of(breaker.job_type), detail=detail)
        logger.warning(
            "The breaker of job type `%s` is open after %s. None of its jobs starts until %s; then one probes it.",
            breaker.job_type,
            run,
            breaker.probe_time,
        )

    def _let_go(self, was: Breaker) -> None:
        """The jobs of the type stand in line again; the sweeper brings those that are left."""
        if was.state is BreakerState.PROBING:
            self.unmark_probe(self._queue_of(was.job_type), was.job_type)
        self._unpark(was.job_type)
        self.announce([self._queue_of(was.job_type)])

    def unmark_probe(self, queue: str, job_type: str) -> None:
        params = {"queue": queue, "job_type": job_type, "marked": MARK + job_type, "limit": BATCH}
        self.run("unmark_probe", params)

    def _unpark(self, job_type: str) -> int:
        params = {"job_type": job_type, "limit": FULL}
        moved = self.run("unpark", {**params, "now": self.time(self.now())})
        self.run("drop_unparked", params)
        if moved:
            self.announce([])
        return moved

    # Claiming

    def heed_breakers(self, turn: Turn, now: datetime | None) -> tuple[Turn, float | None]:
        """The turn with the names under which it may claim; and the seconds until one of its types may be probed.

        Whoever tells of an error is told of that too: it may be the only one who knows that there is something to wait for.
        """
        tells = any(report.job_type in self.adaptive for report in turn.reports)
        if not (self.adaptive and (turn.wants or tells)):
            return turn, None
        asked = {*turn.types, *(name for name, _ in turn.late)}
        if not self.adaptive.keys() & asked:
            return turn, None
        found = [row for row in self._read_tripped(now) if row["job_type"] in asked]
        if not found:
            return turn, None
        due = [row["job_type"] for row in found if row["idle"] or (row["state"] == "open" and row["probe_in"] <= 0)]
        if due and not turn.wants:
            return turn, 0.0
        if due:
            self._choose_probes(turn, due)
        tripped = {row["job_type"] for row in found}
        late = tuple((_marked([name], tripped)[0], seconds) for name, seconds in turn.late)
        # One whose time has come and that has no job is probed with the next that comes.
        waits = [row["probe_in"] for row in found if row["state"] == "open" and row["probe_in"] > 0]
        return structs.replace(turn, types=tuple(_marked(turn.types, tripped)), late=late), min(waits, default=None)

    def claimable(self, types: Iterable[str]) -> set[str]:
        """The names under which jobs of these types may be claimed now."""
        return set(_marked(types, self.tripped_types()))

    def tripped_types(self) -> set[str]:
        """The types whose breaker is not closed."""
        return {row["job_type"] for row in self._read_tripped(self.given_now())} if self.adaptive else set()

    def _read_tripped(self, now: datetime | None) -> list[dict[str, Any]]:
        # A breaker that is left from when its type was adaptive holds nothing back.
        return [row for row in self.rows("tripped", {"now": self.time(now)}) if row["job_type"] in self.adaptive]

    def _choose_probes(self, turn: Turn, due: Sequence[str]) -> None:
        """One job for each of the breakers, under its lock: so there is one over all workers."""
        with self.work():
            locked = self.rows("lock_tripped", {"types": self.words(sorted(due))})
            now = self.now()
            if locked and turn.promote:
                self.promote_due()
            idle = {row["job_type"] for row in self._read_tripped(now) if row["idle"]} if locked else set()
            for row in locked:
                breaker = self._breaker_of(row)
                if breaker.state is BreakerState.PROBING and breaker.job_type in idle:
                    breaker = breaking.released(breaker)
                if breaking.may_probe(breaker, now):
                    self._choose_probe(breaker, turn, now)

    @abstractmethod
    def promote_due(self) -> None:
        """Jobs whose time has come stand in line, so that one of them may be chosen."""

    def _choose_probe(self, breaker: Breaker, turn: Turn, now: datetime) -> None:
        """Nothing changes if there is no job to probe with."""
        for found in self._probes(breaker, turn, now):
            params = {"id": found["id"], "marked": MARK + breaker.job_type, "closes_time": found["closes_time"]}
            placed = self.run("place_probe", {**params, "now": self.time(now)})
            if found["major"] is None:
                self.run("drop_parked", {"id": found["id"], "job_type": breaker.job_type})
            elif not placed:  # the hint was wrong
                self.run("drop_ready", {name: found[name] for name in ("queue", "major", "minor", "id")})
            if placed:
                self._keep(breaking.probing(breaker, found["id"]))
                self.announce([found["queue"]])
                return

    def _probes(self, breaker: Breaker, turn: Turn, now: datetime) -> Iterable[RowDict]:
        params = {"job_type": breaker.job_type, "now": self.time(now)}
        for last in (breaker.probe or 0, 0):
            yield from self.rows("parked_probe", {**params, "last": last})
        for want in turn.wants:
            yield from self.rows("ready_probe", {**params, "queue": want.queue, "limit": BATCH})

    # Rows

    def _queue_of(self, job_type: str) -> str:
        queue: str = self._read_types()[job_type].queue
        return queue

    def _keep(self, breaker: Breaker) -> None:
        params = structs.asdict(breaker) | {"state": breaker.state.value}
        for name in MOMENTS:
            params[name] = self.time(params[name])
        self.run("keep_breaker", params)

    def _breaker_of(self, row: RowDict) -> Breaker:
        values = {name: row[name] for name in Breaker.__struct_fields__} | {"state": BreakerState(row["state"])}
        for name in MOMENTS:
            values[name] = self.moment(values[name])
        return Breaker(**values)


class Lessons:
    """What the breakers of some types learn in one transaction."""

    def __init__(self, before: Mapping[str, Breaker], told: Mapping[str, int], wins: Mapping[str, int]) -> None:
        self.before = before
        self.after = dict(before)
        self._told = told
        self._wins = wins
        self._seen: Counter[str] = Counter()

    def breaker(self, job_type: str) -> Breaker | None:
        return self.after.get(job_type)

    def learn(self, policy: retry.Policy | None, change: Change, happening: Happening, now: datetime) -> None:
        """From one report; the successes told of with it are spread among the reports."""
        name = change.row.job_type
        if name not in self.after or not isinstance(policy, Adaptive):
            return
        if isinstance(happening, TELLING) and self._won_before(name):
            self.after[name] = breaking.interrupted(self.after[name])
        self.after[name] = breaking.learn(self.after[name], policy, change, happening, now)

    def _won_before(self, name: str) -> bool:
        """Whether there was a success since the last report."""
        told, won, number = self._told[name], self._wins.get(name, 0), self._seen[name] + 1
        self._seen[name] = number
        earlier = breaking.successes_before(number - 1, told, won) if number > 1 else 0
        return breaking.successes_before(number, told, won) > earlier


MOMENTS = ("opened_time", "probe_time", "counted_time")


def _marked(types: Iterable[str], tripped: set[str]) -> list[str]:
    return [MARK + name if name in tripped else name for name in types]


def sooner(one: float | None, other: float | None) -> float | None:
    """The smaller number of seconds; None is never."""
    return min((each for each in (one, other) if each is not None), default=None)


def adaptive_among(types: Iterable[TypeRow]) -> dict[str, Adaptive]:
    """The types with adaptive retry, each with its policy."""
    policies = {row.job_type: read_policy(row.retry) for row in types if "adaptive" in (row.retry or "")}
    return {name: policy for name, policy in policies.items() if isinstance(policy, Adaptive)}
