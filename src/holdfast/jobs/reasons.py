"""Why a job is where it is: every reason, the sentence that tells it, what it means and what to do (E1).

The table is the whole list: `explain` gives no other reason, and the reference is made from it. A sentence goes on
after "Job 17 (send) "; what stands in braces is filled in for the job.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from msgspec import Struct


class Reason(StrEnum):
    """Why a job does not run, or that it does."""

    NOT_DUE = "not_due"
    WINDOW = "window"
    EXPIRES_FIRST = "expires_first"
    EXPIRED = "expired"
    RETRY_DELAY = "retry_delay"
    RETRY_HANDLER = "retry_handler"
    SNOOZED = "snoozed"
    PAUSED = "paused"
    ON_HOLD = "on_hold"
    NO_WORKER = "no_worker"
    PREFERS = "prefers"
    BREAKER_OPEN = "breaker_open"
    FACTOR_ABOVE_LIMIT = "factor_above_limit"
    THROTTLED = "throttled"
    SHARE = "share"
    RATE = "rate"
    RESERVED = "reserved"
    REFUSED = "refused"
    IN_LINE = "in_line"
    OUT_OF_LINE = "out_of_line"
    LOOSE = "loose"
    ALONE = "alone"
    WAITS_FOR_ANSWER = "waits_for_answer"
    HELD = "held"
    ABORT_ASKED = "abort_asked"
    CRASHED = "crashed"
    WORKER_LOST = "worker_lost"
    FINAL = "final"
    ARCHIVED = "archived"


class Explanation(Struct, frozen=True):
    """The answer to "why is this job not running?": one reason, the one that has to go away first."""

    reason: Reason
    text: str  # a paragraph for people
    until: datetime | None  # when the reason goes away by itself, where that is known
    details: dict[str, Any]  # the same for programs; `also` has the other reasons that hold


class Finding(Struct, frozen=True):
    """A reason that holds."""

    reason: Reason
    until: datetime | None = None
    details: dict[str, Any] = {}
    words: dict[str, Any] = {}  # for the sentence, where they are not those of the details
    further: tuple[str, ...] = ()  # sentences


class Told(Struct, frozen=True):
    """How a reason is told."""

    sentence: str
    meaning: str
    cure: str = ""


REASONS: Mapping[Reason, Told] = MappingProxyType(
    {
        Reason.NOT_DUE: Told(
            "is not due until {until}.",
            "Its `scheduled_run_time` has not come.",
            'Wait, or enqueue it again under its key with `on_duplicate="replace"` and another time.',
        ),
        Reason.WINDOW: Told(
            "may start only within its time windows ({time_windows}); the next one opens at {until}.",
            "Its `time_windows` are closed now.",
            "Wait, or give the job or its type other windows.",
        ),
        Reason.EXPIRES_FIRST: Told(
            "can never start: it expires at {until}, before it could. It ends then with outcome `error`.",
            "It is due, or its window opens, only after its `expires`.",
            "Enqueue it again with a later `expires`.",
        ),
        Reason.EXPIRED: Told(
            "expired at {expires_time}; the next sweep ends it with outcome `error`.",
            "It did not start before its `expires`.",
            "Enqueue it again with a later `expires`. If it stays like this, no worker sweeps: start one.",
        ),
        Reason.RETRY_DELAY: Told(
            "failed in attempt {attempt} ({error}) and is tried again at {until}.",
            "It is in `error` until its retry is due.",
            "Wait, or look at the error with `holdfast jobs attempts`.",
        ),
        Reason.RETRY_HANDLER: Told(
            "failed in attempt {attempt} ({error}) and waits for the retry handler of `{job_type}` to say what comes next; {who}.",
            "An error that only its retry handler may judge.",
            "Run a worker whose code has the job type with its retry handler.",
        ),
        Reason.SNOOZED: Told(
            "was snoozed by its handler in attempt {attempt} until {until}.",
            "Its handler raised `Snooze`.",
            "Wait.",
        ),
        Reason.PAUSED: Told(
            "stands in queue `{queue}`, which is paused{since}.",
            "An operator paused its queue.",
            "`holdfast queues resume QUEUE`.",
        ),
        Reason.ON_HOLD: Told(
            "may not start: it is held by {actor}, who holds `{level}` of {scope} since {hold_time}.",
            "Somebody keeps the tasks of its run, of its workflow or of all workflows from starting.",
            "`holdfast workflows release pick …`, as the answer's `release` says.",
        ),
        Reason.NO_WORKER: Told(
            "waits for a worker: {why}.",
            "No live worker can run it: none is there, none has the type, none has the labels, none serves the queue, or none may run jobs.",
            "Start a worker with the code, the labels and the queue that the sentence names.",
        ),
        Reason.PREFERS: Told(
            "is left to workers with {labels}, which are busy, until {until}; then any other takes it.",
            "Its type prefers labels that some live workers have. They get it first.",
            "Wait, start more workers with these labels, or declare the type with a shorter `prefer_for`.",
        ),
        Reason.BREAKER_OPEN: Told(
            "is held back by the breaker of `{job_type}`{since}: {why}.",
            "Jobs of its type failed in a row, and the adaptive retry policy gives the type a rest.",
            "Mend what the type needs; one job then probes it, and its success lets the others go on.",
        ),
        Reason.FACTOR_ABOVE_LIMIT: Told(
            "has throttle_factor {throttle_factor}, more than {whole}: it cannot start.",
            "The limit, or the share that it counts in, was lowered after the job was enqueued.",
            "`holdfast queues limit QUEUE N` with a higher limit, or abort the job.",
        ),
        Reason.THROTTLED: Told(
            "waits for room in queue `{queue}`: {used} of its limit {size} used by {users}; it needs {throttle_factor}.",
            "Held and waiting jobs use up the queue's `throttle_limit`.",
            "Wait for one of them, abort one, or raise the limit.",
        ),
        Reason.SHARE: Told(
            "waits for a slot of {pool_words} in queue `{queue}`: {used} of {size} used by {users}; it needs {throttle_factor}.",
            "The queue's throttler gives jobs with this value of a key so many slots, and they are used.",
            "Wait for one of them, abort one, or declare a bigger share.",
        ),
        Reason.RATE: Told(
            "waits for its turn in queue `{queue}`, from which jobs start at a rate of {count} in {per}; {turn}.",
            "The queue's throttler lets so many jobs start in a period, and they did.",
            "Wait, or declare a higher rate.",
        ),
        Reason.RESERVED: Told(
            "would find room {where} ({used} of {size} used), but what is free is reserved for job {reserved_for}, which stands before it "
            "and needs more.",
            "A heavier job before it collects the room that it needs; lighter ones may not starve it.",
            "Wait, or abort or reprioritise the heavier job.",
        ),
        Reason.REFUSED: Told(
            "was not admitted yet by `{throttler}`, the throttler of queue `{queue}`; workers whose code has it ask it again with every claim.",
            "The queue's throttler is a function, and it refuses the job, or no worker has the function.",
            "Look at the function, and run a worker whose code declares the queue with it.",
        ),
        Reason.IN_LINE: Told(
            "is due and stands in line in queue `{queue}`: {line}.",
            "Nothing holds it back but the jobs before it and the workers' free slots.",
            "Wait, add workers or concurrency, or give it a lower `priority` number.",
        ),
        Reason.OUT_OF_LINE: Told(
            "is due but has lost its place in line; a sweeper puts it back.",
            "Its entry in the claim order is missing. The sweepers look for such jobs all the time.",
            "Wait a minute. If it stays like this, no worker sweeps: start one.",
        ),
        Reason.LOOSE: Told(
            "is loose, its attempt {attempt} {cause}, and starts again from queue `{queue}`: {line}.",
            "Its last attempt was lost, handed back, snoozed or answered, and no attempt owns it now.",
            "Wait: it stands in line like any due job. For an answered one, run a worker whose code has its response handler.",
        ),
        Reason.ALONE: Told(
            "was lost {losses} times in a row, {crashes} of them alone, so its next attempt runs alone in a child process: {line}.",
            "It may be what kills its workers.",
            "Look at what its handler does to the process. After `max_crashes` losses while alone it ends.",
        ),
        Reason.WAITS_FOR_ANSWER: Told(
            "waits for an answer to {key}{until_words}.",
            "Its handler returned `WAIT`.",
            "`holdfast jobs complete` or `fail` answers it.",
        ),
        Reason.HELD: Told(
            "runs: attempt {attempt} on worker {worker} ({name}) on {host}, since {start_time}{usual}.",
            "A live worker holds it.",
            "Nothing; `holdfast jobs abort` ends it.",
        ),
        Reason.ABORT_ASKED: Told(
            "runs on worker {worker} and is to be aborted, as {actor} asked; it is ended at {until} at the latest.",
            "Its worker was asked to end it.",
            "Wait: if the worker does not obey within 10 s, a sweeper ends the job.",
        ),
        Reason.CRASHED: Told(
            'was lost with worker {worker}; its type says on_crash="timeout", so it counts as running until {until}.',
            "Its worker is gone, and the type does not want it repeated before its timeout.",
            "Wait for the timeout; then its retries decide. Or abort it.",
        ),
        Reason.WORKER_LOST: Told(
            "was held by worker {worker}, which is gone; the next sweep lets another worker have it.",
            "Its worker left or was called lost, and no sweeper has been there since.",
            "Wait a moment. If it stays like this, no worker sweeps: start one.",
        ),
        Reason.FINAL: Told(
            "ended `{outcome}` at {end_time} in attempt {attempt}{error_words}{retried}.",
            "It is `final`.",
            "`holdfast jobs retry` makes a new job of it.",
        ),
        Reason.ARCHIVED: Told(
            "ended `{outcome}` at {end_time} in attempt {attempt}{error_words}{retried} and is in the archive.",
            "It is `final` and was moved to the archive.",
            "`holdfast jobs retry` makes a new job of it.",
        ),
    }
)
