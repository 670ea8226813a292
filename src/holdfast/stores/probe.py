"""A program of its own that uses a database as a worker does: so a worker learns whether the fault is its own.

It reads one line of JSON: what `Store.address` says, the instance, the worker, and whether to call that worker lost. It moves
the worker's heartbeat, or calls it lost so that others take its jobs. The exit code is 0 if the database has done so.
"""

import json
import sys

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.stores.open import open_at

PATIENCE = 5.0  # seconds to wait for the database


def main() -> int:
    kind, where, instance, worker, lose = json.loads(sys.stdin.readline())
    try:
        store = open_at(kind, where, instance, Clock(), PATIENCE)
        try:
            if lose:
                store.lose(worker)
            else:
                store.beat(worker)  # a write: of a worker that others have called lost they could write
        finally:
            store.close()
    except HoldfastError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
