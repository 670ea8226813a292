"""How a worker is to behave."""

from collections.abc import Callable

from msgspec import Struct

from holdfast.jobs.placement import DUTIES
from holdfast.stores.contract import Store

Chore = Callable[[Store, bool], None]  # done with every sweep; whether everything is to be done now
FAREWELL = 2.0  # seconds to wait for the database when leaving


class WorkerSettings(Struct, frozen=True):
    """Seconds where nothing else is said."""

    queues: tuple[str, ...] = ()  # none: all queues of the instance
    concurrency: int = 100
    labels: tuple[str, ...] = ()
    duties: tuple[str, ...] = DUTIES  # until a rule says otherwise
    name: str = ""
    heartbeat: float = 5.0
    lost_after: float = 30.0
    grace: float = 10.0
    poll: float = 5.0
    archive_after: float = 7 * 86400.0
    archive_keep: float | None = None  # none: for ever
    forgotten_after: float = 60.0
    log_level: str = "INFO"  # of `logging` records that go to the job's log
    log_limit: int = 1 << 20  # bytes of a job's log
    pumps: int | None = None  # none: as many as the store profits from
