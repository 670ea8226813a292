"""A PgBouncer in front of a test's PostgreSQL, in transaction mode: the system's own, which may be missing."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import USER, Server

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
PREPARES_SINCE = (1, 21)
SETTINGS = """[databases]
* = host={server} user=postgres
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = {folder}
auth_type = any
pool_mode = {mode}
default_pool_size = 10
max_client_conn = 200
{more}
"""


def version() -> tuple[int, ...]:
    assert PROGRAM is not None
    told = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in told.split()[1].split("."))


class Bouncer:
    """One PgBouncer in a folder of its own."""

    def __init__(self, server: Server, folder: Path, mode: str = "transaction", prepared: int = 0) -> None:
        if PROGRAM is None:
            pytest.skip("there is no pgbouncer on this machine")
        if prepared and version() < PREPARES_SINCE:
            pytest.skip(f"this pgbouncer keeps no prepared statements: it is older than {PREPARES_SINCE}")
        self.folder = folder
        folder.mkdir()
        more = f"max_prepared_statements = {prepared}" if version() >= PREPARES_SINCE else ""
        (folder / "bouncer.ini").write_text(SETTINGS.format(server=server.folder, folder=folder, mode=mode, more=more))
        self._user = USER if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(folder, USER, USER)
            for above in folder.parents:
                if above.stat().st_uid == 0 and above != Path("/"):
                    above.chmod(above.stat().st_mode | 0o055)
        self.start()

    def start(self) -> None:
        """Where it ends at once, because the socket of the one before seems to be in use, it is started again."""
        self._run()
        ends = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < ends, (self.folder / "log").read_text()
                time.sleep(0.02)
            if self._process.poll() is not None:
                self._run()

    def _run(self) -> None:
        assert PROGRAM is not None
        with (self.folder / "log").open("ab") as log:
            command = [PROGRAM, str(self.folder / "bouncer.ini")]
            self._process = subprocess.Popen(command, user=self._user, stdout=log, stderr=log, cwd=self.folder)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}&port=6432"
