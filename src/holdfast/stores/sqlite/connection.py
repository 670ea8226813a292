"""One connection to an SQLite file, through apsw's own SQLite library.

- WAL and `synchronous=FULL`: what was acknowledged survives a power cut.
- The file belongs to Holdfast. Another SQLite library in this process can drop our locks and delete our WAL; so after
  each commit, before anybody is told, it is asked whether the WAL that we opened is still at its path.
- SQLite has one writer at a time. Those of this process queue for it; for others it is tried again and again.
"""

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from holdfast.clock import monotonic, sleep
from holdfast.errors import Unavailable, shown_path
from holdfast.file_modes import make_file
from holdfast.stores.sqlite.log import Log
from holdfast.stores.sqlite.shared import Shared, shared_by

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "fuse.glusterfs", "lustre"}
)
BUSY = (apsw.BusyError, apsw.LockedError)
LONGEST_PAUSE = 0.004  # seconds between two tries for the write lock
QUEUE_FOR = 0.05  # seconds; then it is tried as with a stranger's lock


class Connection:
    """A connection that knows its transaction, its threads and its file."""

    def __init__(self, path: str, patience: float | None) -> None:
        self.path = path
        self.patience = patience
        self.gives_up_at: float | None = None  # when whoever asks now waits no longer, whatever patience there is
        self.lock = threading.RLock()
        self.depth = 0
        self.broken: str | None = None
        self._closing = False
        self._log: Log | None = None
        self._hushed: int | None = None  # since the file had this version for us
        self.shared = Shared() if self.in_memory else shared_by(path)
        self.database: Any = self._open()  # apsw's own types leave every value open

    @property
    def log_path(self) -> str:
        """Where SQLite has it: beside the file itself, not beside a link to it."""
        found: str = self.database.filename_wal
        return found

    @property
    def in_memory(self) -> bool:
        return self.path == ":memory:"

    def _open(self) -> apsw.Connection:
        if not self.in_memory:
            refuse_network_file_system(self.path)
            make_file(self.path)  # SQLite gives its -wal and -shm the mode of the file
        try:
            database = apsw.Connection(self.path, statementcachesize=200)
            # SQLite's own waits grow to 100 ms, and a busy worker leaves gaps of less than one.
            database.set_busy_timeout(0)
            # Else a statement with `limit ?` is planned anew whenever it is run, for the number that is bound to it.
            database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            self._configure(database)
        except apsw.Error as error:
            raise self.unavailable(error) from error
        if not self.in_memory:
            try:
                self._log = Log(database.filename_wal)
            except OSError as error:
                database.close()
                raise Unavailable(f"The write-ahead log of {self.path} cannot be found: {error}. Try again.") from error
        return database

    def _configure(self, database: apsw.Connection) -> None:
        mode = self._with_patience(lambda: database.execute("pragma journal_mode=wal").fetchall())
        if not self.in_memory and mode[0][0] != "wal":
            raise Unavailable(
                f"SQLite file {shown_path(self.path)} cannot use a write-ahead log (it says `{mode[0][0]}`). Put it on a local disk."
            )
        for setting in (
            "synchronous=full",
            "wal_autocheckpoint=4000",
            "cache_size=-65536",
            "temp_store=memory",
            "foreign_keys=on",
        ):
            database.execute(f"pragma {setting}")
        # The first read opens the WAL, so that its inode is known.
        self._with_patience(lambda: database.execute("select count(*) from sqlite_master").fetchall())

    @contextmanager
    def transaction(self, write: bool, listens: bool = True) -> Iterator[None]:
        """One transaction, not inside another one. Who does not want to listen at its end calls `listen` later."""
        with self.lock:
            queued = False
            try:
                queued = write and self._queue()
                self._begin(write)
                self.depth = 1
                if write and self.shared.ears:
                    self._hush()
                yield
                self._commit(write)
            finally:
                self.depth = 0
                self._roll_back()
                if queued:
                    self._let_next()
                if listens:
                    self.listen()

    def _queue(self) -> bool:
        """Behind others of this process who write: to be let go of is quicker than to try again."""
        if self.in_memory:
            return False
        if self.shared.writing.acquire(timeout=QUEUE_FOR):
            self.shared.writer = self
            return True
        if self.shared.writer is None or self.shared.writer.depth == 0:
            self._let_next()  # whoever had it was interrupted before it could
        return False

    def _let_next(self) -> None:
        with contextlib.suppress(RuntimeError):  # somebody thought that we were interrupted
            self.shared.writing.release()

    def _hush(self) -> None:
        """With the write lock, before the first write."""
        since, self._hushed = self._hushed, 0  # which is never one
        for ear in tuple(self.shared.ears):
            ear.hush()
        self._hushed = self.data_version() if since is None else since  # who was interrupted has not listened since

    def listen(self) -> None:
        """Again. Who wrote before that has either ended, or has the lock."""
        since, self._hushed = self._hushed, None
        if since is None:
            return
        for ear in tuple(self.shared.ears):
            ear.listen()
        try:
            missed = self._is_busy() or self.data_version() != since
        except Exception:
            missed = True  # it cannot be known
        if missed:
            self.shared.heard()

    def _is_busy(self) -> bool:
        """Somebody has the write lock."""
        try:
            self.database.execute("begin immediate")
            return False
        except BUSY:
            return True
        finally:
            self._roll_back()

    def wait_for_writer(self) -> None:
        """Until what was being written is committed."""
        with self.lock:
            if self.depth == 0:
                try:
                    self._begin(write=True)
                finally:
                    self._roll_back()

    def data_version(self) -> int:
        """Another one than before if somebody else has committed since."""
        version: int = self.database.execute("pragma data_version").fetchall()[0][0]
        return version

    def write_once(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """One statement that is a transaction by itself, and what it returns."""
        with self.lock:
            self._refuse_broken()
            queued = False
            try:
                queued = self._queue()
                found: list[tuple[Any, ...]] = self.patiently(statement, values).fetchall()
            finally:
                if queued:
                    self._let_next()
            self._trust_log()
        return found

    def _refuse_broken(self) -> None:
        """Before a transaction. One that is open by now was interrupted before it could be rolled back."""
        self._roll_back()
        if self.broken:
            raise Unavailable(self.broken)

    def _begin(self, write: bool) -> None:
        self._refuse_broken()
        try:
            self.patiently("begin immediate" if write else "begin")
        except apsw.Error as error:
            raise self.unavailable(error) from error

    def _commit(self, write: bool) -> None:
        try:
            self.patiently("commit")
        except apsw.Error as error:
            self._roll_back()
            raise self.unavailable(error) from error
        if write:
            self._trust_log()

    def _roll_back(self) -> None:
        if self.database.in_transaction:
            try:
                self.database.execute("rollback")
            except apsw.Error:
                self.broken = f"SQLite file {shown_path(self.path)}: a transaction could not be rolled back. Close the App and open it again."

    def _trust_log(self) -> None:
        if self._log is not None and self._log.is_gone():
            # What we have would be written over what others may have stored since.
            self.database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self.broken = (
                f"The write-ahead log of {self.path} was deleted while Holdfast had it open: another SQLite library in this process "
                "(the sqlite3 module, Django or SQLAlchemy on SQLite) opened and closed the same file. What was just written may be lost "
                "and nothing more is accepted. Keep other libraries away from Holdfast's file and restart this process."
            )
            raise Unavailable(self.broken)

    def patiently(self, statement: str, values: tuple[Any, ...] = ()) -> Any:
        """A statement that begins a transaction, or needs none."""
        try:
            return self.database.execute(statement, values)
        except BUSY:
            return self._with_patience(lambda: self.database.execute(statement, values))

    def _with_patience(self, action: Any) -> Any:
        """Again and again while a stranger has the lock, until our patience ends."""
        began, pause = monotonic(), 0.0005
        while True:
            try:
                return action()
            except BUSY:
                now = monotonic()
                if self._closing or (self.patience is not None and now - began > self.patience):
                    raise
                if self.gives_up_at is not None and now > self.gives_up_at:
                    raise
                sleep(pause * (0.5 + random.random()))
                pause = min(pause * 1.5, LONGEST_PAUSE)

    def unavailable(self, error: apsw.Error) -> Unavailable:
        """apsw's error as a sentence with a cure."""
        return Unavailable(f"SQLite file {shown_path(self.path)}: {explained(error, self.path)}")

    def abandon(self) -> None:
        """In a forked process: neither rolled back nor closed, for SQLite would do that to the file of both."""
        self._parents, self.database, self._hushed = self.database, apsw.Connection(":memory:"), None

    def close(self) -> None:
        """For good; a thread that waits for a stranger's lock gives up."""
        self._closing = True
        with self.lock:
            with contextlib.suppress(apsw.ConnectionClosedError):
                if self._log is not None and self._log.is_gone():
                    self.database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self.database.close()


def explained(error: apsw.Error, path: str) -> str:
    """What went wrong and the one thing to do."""
    if isinstance(error, BUSY):
        return (
            "another process has kept it locked, or an open transaction of this one: in `with app.transaction():` only enqueues "
            "take part, everything else comes after it. Find who holds it (`fuser` on the file tells) and try again."
        )
    if isinstance(error, apsw.ReadOnlyError):
        return "it is read-only, or its folder is. Give this user the right to write to the file and its folder."
    if isinstance(error, apsw.CantOpenError):
        if os.path.exists(path) and not os.access(path, os.W_OK):
            return "it cannot be opened for writing. Give this user the right to write to the file and its folder."
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            return "its folder does not exist. Create it, or correct the URL."
        return "it cannot be opened. Check that it is a file and that this user may write to it and its folder."
    if isinstance(error, apsw.NotADBError):
        return "it is not an SQLite database. Correct the URL, or move that file away."
    if isinstance(error, apsw.CorruptError):
        return "it is damaged. Restore it from a backup; `holdfast doctor` tells more."
    if isinstance(error, apsw.FullError):
        return "the disk is full. Nothing was written; make room and try again."
    if isinstance(error, apsw.IOError):  # a log that was written and not synced is read again after a crash
        return (
            f"the disk failed ({error}), and whether this was stored is not certain. "
            "See what the system says of the disk (`dmesg`), then try again."
        )
    return f"{error}. Nothing was written."


def refuse_network_file_system(path: str) -> None:
    """SQLite's locks do not hold there."""
    kind = file_system_of(os.path.realpath(os.path.dirname(path) or "."))
    if kind in NETWORK_FILE_SYSTEMS:
        raise Unavailable(
            f"SQLite file {shown_path(path)} lies on a network file system ({kind}), where its locks do not hold. Use a local disk, or PostgreSQL."
        )


def file_system_of(folder: str) -> str:
    """The type of the file system that holds a folder, where the machine tells."""
    best, kind = "", ""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, point, type_, *_ = line.split()
                inside = folder == point or folder.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best):
                    best, kind = point, type_
    except OSError:
        return ""
    return kind
