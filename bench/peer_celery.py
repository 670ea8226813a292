"""Celery: a chord and a chain over Redis (not durable), a prefork worker with two processes."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from celery import Celery, chord, group
from celery import chain as linked

from bench.flow_peer import answer, arguments

SOCKET = os.environ.get("BENCH_REDIS", "")
app = Celery("bench.peer_celery", broker=f"redis+socket://{SOCKET}", backend=f"redis+socket://{SOCKET}?virtual_host=1")
app.conf.update(worker_prefetch_multiplier=64, broker_connection_retry_on_startup=True)


@app.task
def noop(number: int) -> int:
    return number


@app.task
def join(numbers: list[int]) -> int:
    return len(numbers)


def fan(width: int) -> Any:
    joined = chord(group(noop.si(number) for number in range(width)), join.s())
    return linked(noop.si(0), joined).apply_async().get(timeout=120, interval=0.005)


def chain(length: int) -> Any:
    return linked(*(noop.si(number) for number in range(length))).apply_async().get(timeout=120, interval=0.005)


def with_servers() -> int:
    """Redis and a worker for the time of the measurement; the socket's path is told by the environment."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "redis"
        environment = {**os.environ, "BENCH_REDIS": str(socket), "C_FORCE_ROOT": "1"}
        redis = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", folder]
        worker = [sys.executable, "-m", "celery", "-A", "bench.peer_celery", "worker", "-c", "2", "--loglevel=ERROR"]
        worker += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        servers = [subprocess.Popen(redis, **quiet)]  # type: ignore[call-overload]
        try:
            while not socket.exists():
                time.sleep(0.05)
            servers.append(subprocess.Popen(worker, env=environment, **quiet))  # type: ignore[call-overload]
            command = [sys.executable, "-m", "bench.peer_celery", *sys.argv[1:]]
            return subprocess.run(command, env=environment, check=False).returncode
        finally:
            for server in reversed(servers):
                server.terminate()
                server.wait(15)


if __name__ == "__main__":
    if SOCKET:
        answer(arguments(), fan, chain)
    else:
        sys.exit(with_servers())
