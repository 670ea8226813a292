"""RQ: its worker forks for every job. `python -m bench.peer_rq COUNT` prints how many jobs a second, with a Redis of its own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer

PATIENCE = 120


def noop(i: int) -> None:
    """Nothing, in a process of its own."""


def measured(count: int, folder: str) -> float:
    socket = Path(folder) / "redis"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [
        subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder], **quiet
        )
    ]  # type: ignore[call-overload]
    try:
        while not socket.exists():
            time.sleep(0.05)
        redis = Redis(unix_socket_path=str(socket))
        queue = Queue("work", connection=redis, serializer=JSONSerializer)
        queue.enqueue_many(
            [Queue.prepare_data("bench.peer_rq.noop", args=(number,), result_ttl=0) for number in range(count)]
        )
        command = [str(Path(sys.executable).parent / "rq"), "worker", "work", "--url", f"unix://{socket}", "--quiet"]
        command += ["--serializer", "rq.serializers.JSONSerializer"]
        started.append(subprocess.Popen(command, env={**os.environ}, **quiet))  # type: ignore[call-overload]
        return _rate(redis, count)
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def _rate(redis: Redis, count: int) -> float:
    """From the first job taken until none is left."""
    ends, began, left = time.monotonic() + PATIENCE, 0.0, count
    while left and time.monotonic() < ends:
        left = redis.llen("rq:queue:work") + redis.zcard("rq:wip:work")
        began = began or (time.monotonic() if left < count else 0.0)
        time.sleep(0.002)
    if left:
        raise TimeoutError(f"{left} of {count} jobs are left after {PATIENCE} s")
    return count / (time.monotonic() - began)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(int(sys.argv[1]), folder)))
