"""New jobs on PostgreSQL: one by a statement of its own, many alike by another, all others by COPY."""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from msgspec import Struct, structs

from holdfast.clock import Clock, monotonic
from holdfast.errors import Conflict, Invalid, Unavailable
from holdfast.jobs import throttle
from holdfast.jobs.job import Job
from holdfast.stores.adding import is_plain
from holdfast.stores.contract import NewJob
from holdfast.stores.lending import Lending
from holdfast.stores.migrate import moved
from holdfast.stores.postgres.connection import LOST, one_line, sentence
from holdfast.stores.postgres.instance import PostgresInstance
from holdfast.stores.postgres.lent import Lent, driver_of
from holdfast.stores.postgres.literals import field, line, types_literal, words_literal
from holdfast.stores.statements import ALIKE, FIRST_OPTION, decode_any, encode_json

# NOTIFY makes commits wait for each other: who begins to store so soon after one who told of the queue does not tell of it, for
# workers look again 6 ms after a claim. Where it took longer than until then they are told after all.
TELL_EVERY, LOOKED_AGAIN = 0.003, 0.005
MOST_ALIKE, MOST_TEXT = 10_000, 10_000_000  # jobs that go by one statement, and characters of their payloads
KEY_TRIES = 100  # how often a key that comes and goes is asked for


class PostgresAdding(PostgresInstance):
    """Adds what makes jobs."""

    def __init__(self, conninfo: str, instance: str, clock: Clock, patience: float | None = 5) -> None:
        super().__init__(conninfo, instance, clock, patience)
        self._told: dict[str, float] = {}  # when a lone enqueue last told of a queue

    def add_batch(self, jobs: Sequence[NewJob]) -> Sequence[Job]:
        if self.connection.depth == 0 and len(jobs) <= MOST_ALIKE and self._are_plain(jobs):
            return self._add_at_once(jobs)
        return super().add_batch(jobs)

    def _are_plain(self, jobs: Sequence[NewJob]) -> bool:
        """Due now, without keys, and different by their payloads only, which are not too long for one statement."""
        first = jobs[0]
        if not is_plain(first) or self.queue_row(first.queue).throttler is not None:
            return False
        return len(jobs) == 1 or (
            sum(len(new.payload) for new in jobs) <= MOST_TEXT
            and all(structs.replace(new, payload=first.payload) == first for new in jobs)
        )

    def _add_at_once(self, jobs: Sequence[NewJob]) -> Sequence[Job]:
        """By one statement."""
        new, began = jobs[0], monotonic()
        tell = began - self._told.get(new.queue, 0.0) >= TELL_EVERY
        params = {
            "queue": new.queue,
            "claim_order": self.queue_row(new.queue).claim_order,
            "job_type": new.job_type,
            "retry_of": new.retry_of,
            "priority": new.priority,
            "throttle_factor": new.throttle_factor,
            "timeout": new.timeout,
            "retries": new.retries,
            "timeout_named": new.timeout_named,
            "retries_named": new.retries_named,
            "tell": tell,
            "channel": self.channel,
            "now": self.given_now(),
        }
        if len(jobs) == 1:
            name, params["payload"] = "add_one", new.payload
        else:
            name, params["payloads"] = "add_plain", words_literal([each.payload for each in jobs])
        with self._translated:
            try:
                stored = self._alone(self.text(name, new.queue), params)
            except psycopg.errors.LockNotAvailable:
                raise
            except LOST as error:
                self.connection.lost(error)
                raise Unavailable(
                    f"PostgreSQL was lost while a job was being stored ({one_line(error)}): it may or may not be there. "
                    "A job enqueued with a job_key can safely be enqueued again."
                ) from error
        if not stored:
            return self._add_otherwise(jobs)
        if tell:
            self._told[new.queue] = began
        elif monotonic() - self._told[new.queue] >= LOOKED_AGAIN and not self.clock.movable:
            self._tell_late(new.queue)
        now = stored[0][1].astimezone(UTC)
        added = self.job_added(new, stored[0][0], now, now)
        if len(jobs) == 1:
            return [added]
        ids = sorted(row[0] for row in stored)  # they were given in the order of the payloads
        return [
            structs.replace(added, id=job_id, payload=decode_any(each.payload))
            for each, job_id in zip(jobs, ids, strict=True)
        ]

    def _tell_late(self, queue: str) -> None:
        """The jobs are stored, whatever becomes of this."""
        began = monotonic()
        with contextlib.suppress(Unavailable), self.lone_write():
            self.rows("tell", {"channel": self.channel, "queue": queue})
            self._told[queue] = began

    def _add_otherwise(self, jobs: Sequence[NewJob]) -> Sequence[Job]:
        """The queue is not as it was when we last looked."""
        self.queues()
        throttle.check_factor(jobs[0].throttle_factor, self.queue_row(jobs[0].queue).throttle_limit)
        return super().add_batch(jobs)

    def _alone(self, text: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """What a statement gives that is often asked, with little ado."""
        connection = self.connection
        if connection.ours:
            with connection.lock:
                return connection.wire.ask(text, params).fetchall()
        with connection.lone():
            if connection.pooled:
                return connection.database.execute(text.encode(), params).fetchall()
            return connection.wire.ask(text, params).fetchall()

    def add_alike(self, jobs: Sequence[NewJob]) -> list[int]:
        name, params, queue = self._adding_alike(jobs)
        return self._added_alike(jobs, self.rows(name, params, queue))

    def _adding_alike(self, jobs: Sequence[NewJob]) -> tuple[str, dict[str, Any], str]:
        params = {name: getattr(jobs[0], name) for name in ALIKE}
        params |= {"keys": words_literal([new.job_key for new in jobs]), "now": self.given_now()}
        return "add_alike", params | {"payloads": words_literal([new.payload for new in jobs])}, jobs[0].queue

    def _adding_all_alike(
        self,
        jobs: Sequence[NewJob],
        or_fail: bool,
        written: Mapping[str, Any] | None = None,
        lending: Lending | None = None,
    ) -> tuple[str, dict[str, Any], str]:
        """The same by a quicker statement, which fails if a key is taken. `or_fail`: also if the queue needs a second look.

        Where a worker lends room its share of them begins. `written`: their parameters, if these were made before.
        """
        params = {**(self._adding_alike(jobs)[1] if written is None else written), "all": or_fail, "tell": None}
        room = self.room_for(jobs, lending)
        if room is None:
            return "add_all_alike", params, jobs[0].queue
        params |= {"worker": room.worker, "pump": room.number, "room": room.count, "types": types_literal(room.types)}
        return "add_begun", params, jobs[0].queue

    def _added_all_alike(self, jobs: Sequence[NewJob], rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of all; or none, where the queue needs a second look."""
        (row,) = rows
        ids: list[int] = row["ids"] or []
        if row["begun"]:
            assert self.lending is not None
            self.lending.begin(row["number"], jobs, ids[: row["begun"]], row["lease"])
        if row["begun"] < len(ids):
            self.announce_new([jobs[0].queue])
        return ids

    def _added_alike(self, jobs: Sequence[NewJob], rows: Sequence[Mapping[str, Any]]) -> list[int]:
        added = {row["job_key"]: row["id"] for row in rows}
        if not added:
            return []
        self.announce_new([jobs[0].queue])
        left = [new for new in jobs if new.job_key not in added]
        if left:
            added |= {job.job_key: job.id for job in self.insert(left)}
        return [added[new.job_key] for new in jobs]

    def insert(self, jobs: Sequence[NewJob]) -> Sequence[Job]:
        self._read_queues()  # their order and limits as they are now
        self.check_pools(jobs)
        given = self.rows("next_ids", {"count": len(jobs)})[0]
        ids = given["ids"]
        if self._now is None and not self.clock.movable:
            self._now = given["now"].astimezone(UTC)
        now = self.now()
        duplicates = self._take_keys(jobs, ids)
        frames: dict[tuple[Any, ...], Frame] = {}
        added: list[Job] = []
        rows: dict[str, list[str]] = {}
        ready: list[str] = []
        waiting: list[str] = []
        for index, (new, job_id) in enumerate(zip(jobs, ids, strict=True)):
            if index in duplicates:
                added.append(duplicates[index])
                continue
            options = (new.queue, new.job_type, structs.astuple(new)[FIRST_OPTION:])
            frame = frames.get(options)
            if frame is None:
                frame = frames[options] = self._frame(new, now)
            rows.setdefault(new.queue, []).append(frame.job_line(job_id, new))
            (ready if frame.due else waiting).append(f"{frame.before_id}{job_id}{frame.after_id}")
            added.append(structs.replace(frame.job, id=job_id, job_key=new.job_key, payload=decode_any(new.payload)))
        for queue, lines in rows.items():
            self._copy("copy_jobs", lines, queue)
        self._copy("copy_ready", ready)
        self._copy("copy_waiting", waiting)
        for index, job in duplicates.items():
            if jobs[index].on_duplicate == "replace" and job.id in ids:  # the first of them is stored only now
                added[index] = self.insert([jobs[index]])[0]
        self.write_traces(jobs, added)
        self.announce_new(sorted(rows))
        return added

    def _frame(self, new: NewJob, now: datetime) -> "Frame":
        at, closes = self.placed(new, now)
        zones = encode_json(new.time_windows).decode() if new.time_windows else None
        options = (new.retry_of, new.run, new.priority, new.throttle_factor, new.timeout, new.retries)
        middle = line(now, *options, new.timeout_named, new.retries_named, zones, new.expires_time)
        major, minor = self.rank(new.queue, new.priority, at)
        due = at <= now
        return Frame(
            job=self.job_added(new, 0, now, at),
            due=due,
            head=line(new.queue, new.job_type)[:-1],
            middle=middle[:-1],
            tail=line(at, now),
            before_id=line(new.queue, major, minor, "")[:-1] if due else line(at, "")[:-1],
            after_id="\t" + (line(new.job_type, new.throttle_factor, closes, now) if due else line(new.queue, closes)),
        )

    def _copy(self, name: str, lines: Sequence[str], queue: str = "") -> None:
        if lines:
            with self.connection.database.cursor() as cursor, cursor.copy(self.text(name, queue).encode()) as copy:
                copy.write("".join(lines))

    def _take_keys(self, jobs: Sequence[NewJob], ids: Sequence[int]) -> dict[int, Job]:
        """Keys first, so that a duplicate does not break the transaction. The duplicates by position."""
        keyed = sorted(
            (new.job_type, new.job_key, job_id)
            for new, job_id in zip(jobs, ids, strict=True)
            if new.job_key is not None
        )
        taken: set[int] = set()
        holders: dict[tuple[str, str], int] = {}
        open_ = keyed
        for _ in range(KEY_TRIES):
            if not open_:
                break
            types, keys, wanted = (list(column) for column in zip(*open_, strict=True))
            params = {"types": types, "keys": keys, "ids": wanted}
            taken |= {row["id"] for row in self.rows("take_keys", params)}
            if len(taken) == len(keyed):
                return {}
            # A holder that ended between the two statements is neither: its key is free, and asked for again.
            holders |= {(row["job_type"], row["job_key"]): row["id"] for row in self.rows("key_holders", params)}
            open_ = [entry for entry in open_ if entry[2] not in taken and entry[:2] not in holders]
        if not keyed:
            return {}
        own = {job_id: new for new, job_id in zip(jobs, ids, strict=True) if job_id in taken}
        losers = [new if job_id not in taken else None for new, job_id in zip(jobs, ids, strict=True)]
        return self._losers(losers, holders, own)

    def _losers(
        self, losers: Sequence[NewJob | None], holders: Mapping[tuple[str, str], int], own: Mapping[int, NewJob]
    ) -> dict[int, Job]:
        """What each job that did not get its key gets instead."""
        found: dict[int, Job] = {}
        keyed = [(index, new) for index, new in enumerate(losers) if new is not None and new.job_key is not None]
        # In the order of what they hold, as everybody locks rows.
        for index, new in sorted(keyed, key=lambda pair: holders.get((pair[1].job_type, pair[1].job_key or ""), 0)):
            holder = holders.get((new.job_type, new.job_key or ""))
            if holder is None:
                raise Conflict(
                    f"The key `{new.job_key}` of type `{new.job_type}` changes hands too fast. Enqueue again."
                )
            if holder in own:  # the same key twice in one call: the first one has it
                at, _ = self.placed(own[holder], self.now())
                first = self.job_added(own[holder], holder, self.now(), at)
                found[index] = self.as_duplicate(new, first)
            else:
                found[index] = self.settle_duplicates([new], holders)[0]
        return found

    def add_within(self, jobs: Sequence[NewJob], connection: Any) -> Sequence[Job]:
        """In the caller's transaction: psycopg's, SQLAlchemy's or Django's, on the same database."""
        if connection is self.connection._database:
            with self._translated:
                return self.insert_apart(jobs)
        driver = driver_of(connection)
        try:
            store = self._borrowed(driver)
            added = store.insert_apart(jobs)
            store._tell_queues()
            return added
        except psycopg.errors.UndefinedTable as error:
            raise Invalid(
                f"connection= is open on database `{driver.info.dbname}`, where its search_path shows no instance "
                f"`{self.instance}`. Connect to the App's database and schema."
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise Invalid(
                f"connection= may not store jobs: {sentence(error)} Grant its role what the App's has."
            ) from error
        except UnicodeEncodeError as error:
            raise Invalid(
                f"connection= has the client_encoding {driver.info.encoding}, which lacks a character of this job. Set it to UTF8."
            ) from error
        except psycopg.IntegrityError as error:
            raise Conflict(f"PostgreSQL refused a write: {sentence(error)}") from error
        except psycopg.Error as error:
            raise moved(error.diag.message_primary or "") or Unavailable(
                f"PostgreSQL cannot go on with connection=: {sentence(error)} Roll it back and begin again."
            ) from error

    def _borrowed(self, connection: psycopg.Connection[Any]) -> "PostgresAdding":
        store = type(self)(self.conninfo, self.instance, self.clock, self.patience)
        store._queues, store._filled, store.source = self._queues, self._filled, self.source
        lent: Any = Lent(connection)
        store.connection._database, store.connection.lent = lent, True
        store.connection.depth = 1
        return store


class Frame(Struct, frozen=True):
    """What the COPY lines of jobs with the same options have in common."""

    job: Job
    due: bool
    head: str
    middle: str
    tail: str
    before_id: str
    after_id: str

    def job_line(self, job_id: int, new: NewJob) -> str:
        key = "\\N" if new.job_key is None else field(new.job_key)
        payload = new.payload.replace("\\", "\\\\")
        return f"{job_id}\t{self.head}\t{key}\t{self.middle}\t{payload}\t{self.tail}"
