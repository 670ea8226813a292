"""Workers that were started before an upgrade: they know only the first migrations of their store."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.stores import queryfile
from holdfast.stores.sqlite.jobs import STATEMENTS
from tests.faults.fleet import make_app

OLDEST = 1
known, today = queryfile.numbered, dict(STATEMENTS)
LAW = """create trigger {queue_table_insert} before insert on {queue_table} when new.state <> 'initial'
begin select raise(abort, 'holdfast law: a new job must be `initial` and have an id of its own'); end"""
BEFORE = {  # of SQLite, until its third migration: no job begins as it is stored
    "next_ids": "update {sequence} set last = last + :count returning last",
    "none_begin": "select 1",
    "add_begun_one": "select ?13, null where false",
    "create_law_insert": LAW,
}


@contextmanager
def knowing(last: int | None = None, more: tuple[tuple[int, str, str], ...] = ()) -> Iterator[None]:
    """In here there are migrations up to one only, or some more than there are; and statements that need no others."""

    def numbered(package: str) -> list[Any]:
        return [each for each in known(package) if last is None or each[0] <= last] + list(more)

    before, statements = queryfile.numbered, dict(STATEMENTS)
    queryfile.numbered = numbered
    STATEMENTS.update(today if last is None or last >= 3 else BEFORE)
    try:
        yield
    finally:
        queryfile.numbered = before
        STATEMENTS.update(statements)


if __name__ == "__main__":
    url, name, concurrency, heartbeat, lost_after = sys.argv[1:]
    with knowing(OLDEST):
        make_app(url, name, float(heartbeat), float(lost_after)).run_worker(concurrency=int(concurrency), grace=5.0)
