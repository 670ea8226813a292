"""Instances on PostgreSQL that tests have one after the other: making one costs more than most tests do.

- One that a test has had is emptied, past the law, and is then as it was when it was made, but for queues that are kept.
- Where a test has changed tables, or somebody still has them, the instance is left alone.
- One connection is kept for this and for the invariants: much of the time of a new one goes into getting to know tables.
"""

from typing import Any

import psycopg

from holdfast.clock import MovableClock
from holdfast.stores.open import open_store

MODEL = "model"  # an instance that no test has
FORM = """
select substr(c.relname, {skip}) as name, c.relnatts, c.relchecks,
  (select count(*) from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal),
  (select count(*) from pg_index i where i.indrelid = c.oid)
from pg_class c where c.relkind in ('r', 'p') and c.relname like '{name}\\_\\_%' order by 1
"""
EMPTY = "begin; set local lock_timeout = '1s'; set local session_replication_role = replica; {all}; commit"
RESTART = (
    "select setval(seqrelid::regclass, seqstart, false) from pg_sequence join pg_class on oid = seqrelid "
    "where relname like '{name}\\_\\_%'"
)
AS_DECLARED = "claim_order = 'priority', declared_limit = 0, set_limit = null, paused = false, throttler = null"


class UsedAgain:
    """Those of a test process and its database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: Any = None
        self._free: dict[str, list[str]] = {}
        self._form: list[tuple[Any, ...]] = []

    def take(self, kept: str) -> str | None:
        """One that is empty and has at most this queue."""
        free = self._free.get(kept)
        return free.pop() if free else None

    def give_back(self, name: str, kept: str) -> None:
        if self._form_of(name) == self.form:
            try:
                self.empty(name, kept)
            except psycopg.errors.LockNotAvailable:
                self.connection.rollback()
            else:
                self._free.setdefault(kept, []).append(name)

    def empty(self, name: str, kept: str) -> None:
        """Take everything out but this queue, if the instance is there."""
        here, form = "select from __holdfast_instance where name = %s", self.form
        if not self.connection.execute(here, [name]).fetchall():
            return
        queues = "select table_name from __holdfast_table where instance = %s and table_name <> %s"
        everything = [f'drop table "{row[0]}"' for row in self.connection.execute(queues, [name, f"{name}_{kept}"])]
        everything += [f"delete from __holdfast_table where instance = '{name}' and table_name <> '{name}_{kept}'"]
        everything += [f'delete from "{name}{own}"' for own, *_ in form if own != "__queue"]
        everything += [f"delete from {name}__queue where table_name <> '{name}_{kept}'"]
        everything += [f"update {name}__queue set {AS_DECLARED}", RESTART.format(name=name)]
        self.connection.execute(EMPTY.format(all="; ".join(everything)).encode())

    @property
    def form(self) -> list[tuple[Any, ...]]:
        """Of the tables of a new one."""
        if not self._form:
            store = open_store(self.url, MODEL, MovableClock())
            store.set_up()
            store.close()
            self._form = self._form_of(MODEL)
        return self._form

    def _form_of(self, name: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.connection.execute(FORM.format(skip=len(name) + 1, name=name)).fetchall()
        return found

    @property
    def connection(self) -> Any:
        """A test may have ended it, with all others."""
        try:
            self._connection.execute("select 1")
        except (AttributeError, psycopg.OperationalError):
            self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
