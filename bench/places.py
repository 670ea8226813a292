"""Where a measurement takes place: a PostgreSQL server with stock settings or SQLite files on a real disk, both of our own."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import psutil
import psycopg

from bench.processes import cpu_of
from bench.worker import QUEUE, bench_app
from tests.postgres_server import Server

TABLE = f"holdfast_{QUEUE}"
GUARD = """
import os, shutil, signal, sys
sys.stdin.read()
try:
    os.kill(int(open(sys.argv[1]).readline()), signal.SIGQUIT)
except OSError:
    pass
shutil.rmtree(sys.argv[2], ignore_errors=True)
"""
UNFINISHED = f"select 1 from {TABLE} where id > {{after}} and state <> 'final' order by id desc limit 1"


class Postgres:
    """One server; each measurement gets a database of its own."""

    name = "postgres"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = Server(folder / "server")
        self.server.folder.mkdir()
        self.server.start()
        self._guard = self._guarded()

    def _guarded(self) -> subprocess.Popen[bytes]:
        """Ends the server should this process be killed: the pipe to it then closes."""
        command = [sys.executable, "-c", GUARD, str(self.server.data / "postmaster.pid"), str(self.folder)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def fresh(self, source: str = "") -> str:
        """An empty database, or a copy of one that was kept; its URL."""
        self.execute("postgres", "alter system reset autovacuum")
        self.execute("postgres", "select pg_reload_conf()")
        self.drop("bench")
        template = f' template "{source}" strategy file_copy' if source else ""
        self.execute("postgres", f'create database "bench"{template}')
        if not source:
            set_up(self.server.url("bench"))
        return self.server.url("bench")

    def keep(self, name: str) -> None:
        """Remember the database as it is now, for `fresh(name)`."""
        self.drop(name)
        self.execute("postgres", f'create database "{name}" template "bench" strategy file_copy')

    def drop(self, name: str) -> None:
        self.execute("postgres", f'drop database if exists "{name}" with (force)')

    def execute(self, database: str, statement: str) -> Any:
        with psycopg.connect(self.server.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchone() if cursor.description else None

    def settle(self) -> None:
        """Let loading not weigh on what is measured after it."""
        self.execute("bench", "vacuum analyze")
        self.execute("bench", "checkpoint")

    def look(self) -> "PostgresLook":
        return PostgresLook(self.server.url("bench"))

    def cpu(self) -> float:
        """Seconds of CPU of all processes of the server."""
        return cpu_of(psutil.Process(self.server.pid))

    def leave_alone(self) -> None:
        """No autovacuum until the next `fresh`."""
        self.execute("postgres", "alter system set autovacuum = off")
        self.execute("postgres", "select pg_reload_conf()")

    def transactions(self) -> int:
        """How many the database has seen, as far as its statistics know."""
        query = "select xact_commit + xact_rollback from pg_stat_database where datname = 'bench'"
        return int(self.execute("postgres", query)[0])

    def close(self) -> None:
        self._guard.kill()
        self._guard.wait()
        assert self._guard.stdin
        self._guard.stdin.close()
        self.server.remove()


class PostgresLook:
    """A connection that only looks."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)

    def one(self, query: str) -> Any:
        row = self.connection.execute(query.encode()).fetchone()
        return row[0] if row else None

    def close(self) -> None:
        self.connection.close()


class Sqlite:
    """A folder; each measurement gets a file of its own."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "sqlite"
        self.folder.mkdir()
        self.path = self.folder / "bench.db"

    def fresh(self, source: str = "") -> str:
        """An empty file, or a copy of one that was kept; its URL."""
        for file in self.folder.glob("bench.db*"):
            file.unlink()
        url = f"sqlite:///{self.path}"
        if source:
            shutil.copyfile(self.folder / source, self.path)
        else:
            set_up(url)
        return url

    def keep(self, name: str) -> None:
        """Remember the file as it is now, for `fresh(name)`."""
        connection = apsw.Connection(str(self.path))
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.close()
        shutil.copyfile(self.path, self.folder / name)

    def settle(self) -> None:
        connection = apsw.Connection(str(self.path))
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.close()

    def look(self) -> "SqliteLook":
        return SqliteLook(self.path)

    def cpu(self) -> float:
        return 0.0

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class SqliteLook:
    """A connection that only looks."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.set_busy_timeout(5000)

    def one(self, query: str) -> Any:
        rows = self.connection.execute(query).fetchall()
        return rows[0][0] if rows else None

    def close(self) -> None:
        self.connection.close()


Place = Postgres | Sqlite


def set_up(url: str) -> None:
    """Make the instance with its queue and types."""
    with bench_app(url) as app:
        app.store.queues()


def load(url: str, count: int, job_type: str = "noop", lot: int = 1000, first: int = 0, **fixed: Any) -> int:
    """Enqueue so many jobs with payload {"i": n}, numbered from `first`; the id that stood before them."""
    found = 0
    with bench_app(url) as app:
        kind = app.job_types[job_type]
        for start in range(first, first + count, lot):
            numbers = range(start, min(start + lot, first + count))
            added = kind.enqueue_many([{"i": number, **fixed} for number in numbers])
            found = found or added[0].id
    return found - 1
