"""One PostgreSQL for a whole test run: started when a test first asks for it, gone when the run is.

- The run's controlling process starts a guard at once; the guard starts the server only when `wanted` appears.
- The guard's standard input is a pipe from the controlling process. When that ends, however it came (a failed test,
  an interrupt, SIGKILL), the guard stops the server and removes its folder.
- Under pytest-xdist the worker processes are told the folder and find everything there.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests import in_memory
from tests.postgres_server import Server

ROOT = Path(__file__).resolve().parent.parent
# Nothing here outlives the run, so nothing need survive a power cut. Many test processes, each with some connections.
SETTINGS = ("fsync=off", "full_page_writes=off", "max_connections=200", "shared_buffers=64MB", "autovacuum_naptime=1d")
PATIENCE = 60.0


class Guard:
    """The controlling process's end of it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=in_memory.folder()))
        command = [sys.executable, "-m", "tests.postgres_on_demand", str(self.folder)]
        # A session of its own: an interrupt is for the tests, the guard ends when they have.
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True)

    def close(self) -> None:
        """Returns when the server is gone."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)


def server_in(folder: Path) -> Server:
    """The running server, started if this is the first wish for it."""
    (folder / "wanted").touch()
    ends = time.monotonic() + PATIENCE
    while not (folder / "ready").exists():
        if (folder / "failed").exists() or time.monotonic() > ends:
            raise RuntimeError(f"PostgreSQL did not start: {(folder / 'failed').read_text()}")
        time.sleep(0.01)
    return Server(folder / "server", SETTINGS)


def own_server(*settings: str) -> Server:
    """For a test that maltreats it; the test starts and removes it."""
    return Server(Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=in_memory.folder())), settings)


def guard(folder: Path) -> None:
    """Start the server when it is wanted, end it when standard input does."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), ended.set()), daemon=True).start()
    while not ended.wait(0.02) and not (folder / "wanted").exists():
        pass
    server = None
    if not ended.is_set():
        os.chmod(folder, 0o755)
        (folder / "server").mkdir()
        server = Server(folder / "server", SETTINGS)
        try:
            server.start()
            (folder / "ready").touch()
        except Exception as error:
            (folder / "failed").write_text(str(error))
    ended.wait()
    if server is not None and (folder / "ready").exists():
        server.remove()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
