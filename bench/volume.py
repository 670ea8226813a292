"""What a job takes in bytes: of PostgreSQL's write-ahead log, in the live tables and in the archive; and a worker's connections."""

import contextlib
import time
from itertools import pairwise

from msgspec import Struct

from bench.places import Postgres
from bench.worker import QUEUE, bench_app

LOG = "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
TABLES = "select sum(pg_total_relation_size(oid)) from pg_class where relkind = 'r' and relname like '{name}%'"
LIVING = f"select count(*) from holdfast_{QUEUE} where state <> 'final'"
OTHERS = "select count(*) from pg_stat_activity where datname = 'bench' and pid <> pg_backend_pid()"


class Volume(Struct, frozen=True):
    """Bytes for each job."""

    log_of_enqueue: float
    log_of_run: float
    log_of_archiving: float
    live: float
    archived: float
    connections: int


def volume(place: Postgres, count: int) -> Volume:
    with contextlib.redirect_stdout(None), bench_app(place.fresh()) as app:  # without marks its handlers print
        asked = [_log(place)]
        for first in range(0, count, 1000):
            app.enqueue_many([app.job_types["noop"].new(i=i) for i in range(first, first + 1000)])
        asked.append(_log(place))
        with app.worker(concurrency=100):
            while place.execute("bench", LIVING)[0]:
                time.sleep(0.1)
            connections = place.execute("bench", OTHERS)[0]
        asked.append(_log(place))
        live = place.execute("bench", TABLES.format(name="holdfast_"))[0]
        while app.store.archive(0):
            pass
        asked.append(_log(place))
    kept = place.execute("bench", TABLES.format(name="holdfast__archive"))[0]
    logs = [float(after - before) / count for before, after in pairwise(asked)]
    return Volume(*logs, float(live) / count, float(kept) / count, connections)


def _log(place: Postgres) -> int:
    return int(place.execute("bench", LOG)[0])
