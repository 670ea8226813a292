"""Workers that were started before an upgrade: they know only the first migrations of their store."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.stores import queryfile
from tests.faults.fleet import make_app

OLDEST = 1
known = queryfile.numbered


@contextmanager
def knowing(last: int | None = None, more: tuple[tuple[int, str, str], ...] = ()) -> Iterator[None]:
    """In here there are migrations up to one only, or some more than there are."""

    def numbered(package: str) -> list[Any]:
        return [each for each in known(package) if last is None or each[0] <= last] + list(more)

    queryfile.numbered = numbered
    try:
        yield
    finally:
        queryfile.numbered = known


if __name__ == "__main__":
    url, name, concurrency, heartbeat, lost_after = sys.argv[1:]
    with knowing(OLDEST):
        make_app(url, name, float(heartbeat), float(lost_after)).run_worker(concurrency=int(concurrency), grace=5.0)
