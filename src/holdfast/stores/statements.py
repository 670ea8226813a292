"""What a database has to add to the verbs that both databases speak in the same words."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.jobs.job import Source
from holdfast.stores.contract import News, Taker

RowDict = Mapping[str, Any]
BATCH = 1000
MOST_TEXT = (
    10_000_000  # characters of payloads, results or tracebacks in one statement: no database takes a text of a billion
)
T = TypeVar("T")
FIRST_OPTION = 4  # the options of a NewJob stand behind its queue, type, payload and key
ALIKE = (
    "queue",
    "job_type",
    "run",
    "priority",
    "throttle_factor",
    "timeout",
    "retries",
    "timeout_named",
    "retries_named",
)
encode_json = msgspec.json.Encoder().encode
decode_any = msgspec.json.Decoder().decode


class Statements(ABC):
    """Statements by name, transactions, and the form of times and lists: what the verbs are made of."""

    pumps = 1
    lot = 500

    generation = 1

    source: Source | None = None  # what the job values are to ask for more

    def __init__(self, instance: str, clock: Clock) -> None:
        self.instance = instance
        self.clock = clock
        self.lock = threading.RLock()
        self.listeners: list[Callable[[], None]] = []
        self.takers: list[Taker] = []

    @property
    def patience(self) -> float | None:
        """Seconds to wait for the database before `Unavailable`; None: for ever."""
        found: float | None = self.connection.patience
        return found

    @patience.setter
    def patience(self, seconds: float | None) -> None:
        self.connection.patience = seconds

    connection: Any

    @contextmanager
    def until(self, ends: float | None) -> Iterator[None]:
        """For whoever has waited already: whatever patience there is, nothing waits for the database after this moment."""
        with self.lock:
            before, self.connection.gives_up_at = self.connection.gives_up_at, ends
            try:
                yield
            finally:
                self.connection.gives_up_at = before

    @abstractmethod
    def now(self) -> datetime: ...

    def given_now(self) -> datetime | None:
        """The time to tell a statement; None where the database knows it better."""
        return self.now()

    @abstractmethod
    def work(self, write: bool = True) -> AbstractContextManager[None]:
        """One transaction under this store's lock; `Unavailable` if the database cannot be had."""

    def lone(self) -> AbstractContextManager[None]:
        """For a single statement, which needs no transaction around it."""
        return self.work(write=False)

    def lone_write(self) -> AbstractContextManager[None]:
        return self.work()

    @abstractmethod
    def rows(self, name: str, params: Mapping[str, Any] | None = None, queue: str = "") -> list[dict[str, Any]]: ...

    @abstractmethod
    def run(self, name: str, params: Mapping[str, Any] | None = None, queue: str = "") -> int: ...

    def rows_of(self, asked: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[dict[str, Any]]]:
        """Several questions, one after the other."""
        return [self.rows(name, params) for name, params in asked]

    def rows_and_now(
        self, asked: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> tuple[list[list[dict[str, Any]]], datetime]:
        """The same, and the time after the last of them."""
        return self.rows_of(asked), self.now()

    def run_all(self, statements: Sequence[tuple[str, Mapping[str, Any], str]]) -> list[int]:
        """Several statements with their parameters and queues, one after the other; how many rows each changed."""
        return [self.run(name, params, queue) for name, params, queue in statements]

    def run_many(self, name: str, params: Sequence[Mapping[str, Any]], queue: str = "") -> None:
        for each in params:
            self.run(name, each, queue)

    @abstractmethod
    def time(self, moment: datetime | None) -> Any: ...

    @abstractmethod
    def moment(self, value: Any) -> datetime | None: ...

    @abstractmethod
    def instant(self, at: datetime) -> float:
        """The moment as the number that stands in `ready`."""

    @abstractmethod
    def pack(self, ids: Sequence[int]) -> Any: ...

    @abstractmethod
    def unpack(self, value: Any) -> list[int]: ...

    @abstractmethod
    def words(self, values: Sequence[str]) -> Any:
        """A list of words as a parameter."""

    @abstractmethod
    def columns(self, values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """The values of many rows, by column, as parameters of one statement."""

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """The caller's own transaction; enqueues inside commit or roll back with it (Q6)."""
        with self.work():
            yield None

    @abstractmethod
    def announce(self, queues: Sequence[str]) -> None:
        """Jobs became due: tell the workers. Called inside the transaction that made it so."""

    def tell(self, news: News) -> None:
        """Something the workers should hear of at once."""
        self.announce(())

    def files(self) -> tuple[str, ...]:
        """Where the database lies on this machine, by absolute paths; empty if that is not for us to know."""
        return ()

    @abstractmethod
    def address(self) -> tuple[str, str, str] | None:
        """Where another process finds this database: its kind, a path or connection string, the instance. None: none can."""

    def lock_path(self) -> str | None:
        """Where a worker keeps a locked file while it lives; None where that tells nothing."""
        return None

    hears_itself = False  # what it writes may come to its own watch as well

    @abstractmethod
    def hush(self) -> None:
        """Its own watch need not listen again after each write, but only when it is told to."""

    @abstractmethod
    def listen(self) -> None:
        """Again, after `hush`."""

    def changed(self, waited: bool = False) -> bool:
        """False only if it is certain that nobody else wrote since the last time it was asked.

        `waited`: whoever asks has written something since the news came.
        """
        return True

    def tidy(self, thorough: bool = True) -> str | None:
        """What the database needs from time to time (`thorough`), or just a look; a sentence if something is wrong."""
        return None


def lots(entries: Sequence[T], length: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """As many at a time as one statement takes."""
    begin = size = 0
    for index, entry in enumerate(entries):
        more = length(entry)
        if size + more > MOST_TEXT and index > begin:
            yield entries[begin:index]
            begin, size = index, 0
        size += more
    yield entries[begin:]


def text_of(value: Any) -> str | None:
    return None if value is None else value.value
