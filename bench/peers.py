"""`python -m bench.peers`: other queues on the same PostgreSQL binary and the same disk, each in an environment of its own.

- Environments are made under bench/environments when they are missing, by name from PyPI and npm.
- Ours and the peers take turns; medians are compared. A peer that cannot be installed here is one line, not an error.
"""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from bench import enqueueing, flow_peers, fork_peers, latency
from bench.__main__ import interleaved, measured, places
from bench.execution import Run, check_marks, execution, middle, watch
from bench.flow_peers import FLOW_PEERS, FlowPeer
from bench.fork_peers import FORK_PEERS, ForkPeer
from bench.marks import Marks
from bench.places import Place, Postgres
from bench.processes import ENVIRONMENTS, ROOT, Stalled, Started, end_all, wait_for
from bench.report import Row, save, show

PATIENCE = 120


class Peer(Struct, frozen=True):
    """What is measured of it and what we want to be against it."""

    name: str
    packages: tuple[str, ...]
    place: str
    unfinished: str
    jobs: int
    singles: int
    bulk: int
    durable: bool = True
    python: str = ""
    node: bool = False
    exec_at_least: float | None = None
    latency_at_most: float | None = None


PEERS = (
    Peer(
        "graphile",
        ("graphile-worker", "pg"),
        "postgres",
        "select 1 from graphile_worker._private_jobs limit 1",
        60_000,
        1_000,
        50_000,
        node=True,
        exec_at_least=1.8,
    ),
    Peer(
        "pgboss",
        ("pg-boss@10",),
        "postgres",
        "select 1 from pgboss.job where state < 'completed' and name = 'work' limit 1",
        60_000,
        1_000,
        50_000,
        node=True,
        exec_at_least=1.4,
    ),
    Peer(
        "oban",
        ("oban", "uvloop"),
        "postgres",
        "select 1 from oban_jobs where state in ('available', 'executing', 'scheduled', 'retryable') limit 1",
        5_000,
        1_000,
        20_000,
        python="3.12",
        exec_at_least=25,
    ),
    Peer(
        "pgqueuer",
        ("pgqueuer", "asyncpg", "uvloop"),
        "postgres",
        "select 1 from pgqueuer limit 1",
        30_000,
        1_000,
        50_000,
        exec_at_least=4,
        latency_at_most=0.7,
    ),
    Peer(
        "procrastinate",
        ("procrastinate",),
        "postgres",
        "select 1 from procrastinate_jobs where status in ('todo', 'doing') limit 1",
        2_000,
        1_000,
        20_000,
    ),
    Peer(
        "huey",
        ("huey",),
        "sqlite",
        "select 1 from task limit 1",
        10_000,
        2_000,
        10_000,
        durable=False,
        exec_at_least=12,
    ),
    Peer(
        "litequeue",
        ("litequeue",),
        "sqlite",
        "select 1 from Queue where status in (0, 1) limit 1",
        10_000,
        2_000,
        10_000,
        durable=False,
        python="3.12",
        exec_at_least=7,
    ),
)
OURS = Peer("holdfast", (), "", "", 100_000, 2_000, 50_000)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers")
    names = [peer.name for peer in (*PEERS, *FLOW_PEERS, *FORK_PEERS)]
    parser.add_argument("--only", nargs="+", default=[], metavar="PEER", choices=names)
    parser.add_argument("--quick", action="store_true", help="a fifth of the size, each once")
    parser.add_argument("--runs", type=int, help="of every measurement (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to keep the result")
    given = parser.parse_args()
    chosen = [peer for peer in PEERS if not given.only or peer.name in given.only]
    size, runs = 5 if given.quick else 1, given.runs or (1 if given.quick else 3)
    flows = [peer for peer in FLOW_PEERS if not given.only or peer.name in given.only]
    forks = [peer for peer in FORK_PEERS if not given.only or peer.name in given.only]
    missing = {
        peer.name: why for peer in (*chosen, *flows, *forks) if (why := flow_peers.lacking(peer) or install(peer))
    }
    ready = [peer for peer in chosen if peer.name not in missing]
    flows = [peer for peer in flows if peer.name not in missing]
    forks = [peer for peer in forks if peer.name not in missing]
    rows = [Row(name, "", None, note=f"skipped: {why}") for name, why in missing.items()]
    began = time.monotonic()
    with places(
        {peer.place for peer in ready} | {place for peer in (*flows, *forks) for place in peer.places}
    ) as found:
        for place in ("postgres", "sqlite"):
            here = [peer for peer in ready if peer.place == place]
            if here:
                rows += measured(
                    f"peers-{place}", lambda where, _, here=here: compared(where, here, runs, size), found, None
                )  # type: ignore[misc]
            along = [peer for peer in flows if place in peer.places]
            if along:
                rows += measured(
                    f"flows-{place}", lambda where, _, along=along: flow_peers.compared(where, along, runs), found, None
                )  # type: ignore[misc]
            apart = [peer for peer in forks if place in peer.places]
            if apart:
                rows += measured(
                    f"forks-{place}",
                    lambda where, _, apart=apart: fork_peers.compared(where, apart, runs, size),
                    found,
                    None,
                )  # type: ignore[misc]
    show(rows, f"Holdfast and others on this machine ({runs} runs, medians, {time.monotonic() - began:.0f} s)")
    print(
        f"Kept in {save(rows, 'peers', {'runs': runs, 'size': 1 / size, 'versions': installed([*ready, *flows, *forks])}, given.json).name}."
    )
    return 0 if all(row.met is not False for row in rows) else 1


def install(peer: Peer | FlowPeer | ForkPeer) -> str:
    """Make the peer's environment if it is not there; why not, if that fails."""
    folder = ENVIRONMENTS / peer.name
    complete = folder / ".complete"
    if complete.exists():
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        if on_node(peer):
            _install_node(peer, folder)
        else:
            _run([interpreter(peer.python), "-m", "venv", str(folder)])
            _run(
                [
                    str(folder / "bin" / "python"),
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    *peer.packages,
                ]
            )
    except (OSError, subprocess.SubprocessError, LookupError) as error:
        told = getattr(error, "stderr", "") or str(error)
        return " ".join(str(told).split())[-300:]
    complete.touch()
    return ""


def on_node(peer: Peer | FlowPeer | ForkPeer) -> bool:
    return isinstance(peer, Peer) and peer.node


def _install_node(peer: Peer | FlowPeer | ForkPeer, folder: Path) -> None:
    if not shutil.which("npm"):
        raise LookupError("it needs Node, and npm is not on the PATH")
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true}\n')
    _run(["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), *peer.packages])


def interpreter(wanted: str) -> str:
    """A Python of at least that version; ours if it is."""
    least = tuple(map(int, wanted.split("."))) if wanted else (3, 0)
    if sys.version_info[:2] >= least:
        return sys.executable
    known = sorted(
        Path.home().glob(".pyenv/versions/3.*/bin/python"),
        key=lambda path: [int(part) for part in path.parts[-3].split(".")],
    )
    for candidate in (f"python{wanted}", *map(str, known)):
        code = f"import sys; sys.exit(sys.version_info[:2] < {least})"
        if (
            shutil.which(candidate)
            and not subprocess.run([candidate, "-c", code], capture_output=True, check=False).returncode
        ):
            return candidate
    raise LookupError(f"it needs Python {wanted} or newer, which is not here")


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)


def installed(peers: list[Peer | FlowPeer | ForkPeer]) -> dict[str, str]:
    """The version of each peer."""
    found = {}
    for peer in peers:
        if on_node(peer):
            package = peer.packages[0].partition("@")[0]
            manifest = ENVIRONMENTS / peer.name / "node_modules" / package / "package.json"
            found[peer.name] = json.loads(manifest.read_text())["version"]
        else:
            code = f"from importlib.metadata import version; print(version({peer.packages[0]!r}))"
            command = [str(ENVIRONMENTS / peer.name / "bin" / "python"), "-c", code]
            found[peer.name] = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found


def compared(place: Place, peers: list[Peer], runs: int, size: int) -> list[Row]:
    """Ours and theirs in turns, measure by measure."""
    rows: list[Row] = []
    for processes in (1, 2):
        kinds: dict[str, Callable[[], Run]] = {
            "ours": lambda count=processes: execution(place, OURS.jobs // size, count)
        }  # type: ignore[misc]
        for peer in peers:
            kinds[peer.name] = lambda peer=peer, count=processes: peer_execution(place, peer, peer.jobs // size, count)  # type: ignore[misc]
        rows += _rate_rows(
            place, peers, runs, kinds, f"{processes} worker{'s' if processes > 1 else ''}", processes == 1
        )
    kinds = {"ours": lambda: enqueueing.one_at_a_time(place, OURS.singles // size)}
    kinds |= {peer.name: lambda peer=peer: peer_enqueue(place, peer, "one", peer.singles // size) for peer in peers}  # type: ignore[misc]
    rows += _rate_rows(place, peers, runs, kinds, "enqueue one", False)
    kinds = {"ours": lambda: enqueueing.many(place, OURS.bulk // size)}
    kinds |= {peer.name: lambda peer=peer: peer_enqueue(place, peer, "many", peer.bulk // size) for peer in peers}  # type: ignore[misc]
    rows += _rate_rows(place, peers, runs, kinds, "enqueue many", False)
    return rows + _latency_rows(place, peers, runs, max(50, 500 // size))


def _rate_rows(
    place: Place, peers: list[Peer], runs: int, kinds: dict[str, Callable[[], Run]], what: str, judged: bool
) -> list[Row]:
    got = {name: middle(samples) for name, samples in interleaved(runs, **_told(kinds)).items()}
    rows = []
    for peer in peers:
        ours, theirs = got["ours"], got[peer.name]
        costs = f"its CPU {theirs.worker_cpu:.0f} + {theirs.server_cpu:.0f} µs" if theirs.worker_cpu else ""
        note = "; ".join(part for part in (costs, "" if peer.durable else "it does not fsync") if part)
        if theirs.rate == 0:
            rows.append(
                Row(
                    f"{place.name}: {what} : {peer.name}",
                    "jobs/s",
                    ours.rate,
                    failed=judged,
                    note="the peer's run failed; see above",
                )
            )
            continue
        at_least = peer.exec_at_least if judged else None
        row = Row(
            f"{place.name}: {what} : {peer.name}",
            "jobs/s",
            ours.rate,
            theirs.rate,
            peer.name,
            at_least=at_least,
            note=note,
        )
        rows.append(
            Row(
                **{
                    **{name: getattr(row, name) for name in Row.__struct_fields__},
                    "worker_cpu": ours.worker_cpu,
                    "server_cpu": ours.server_cpu,
                }
            )
        )
    if judged and isinstance(place, Postgres):
        rows.append(Row(f"{place.name}: server CPU, {what}", "µs/job", got["ours"].server_cpu, at_most=20))
    return rows


def _told(kinds: dict[str, Callable[[], Run]]) -> dict[str, Callable[[], Run]]:
    """A peer's failure is told and counts as no rate at all; ours is an error."""

    def guarded(name: str, kind: Callable[[], Run]) -> Callable[[], Run]:
        def attempt() -> Run:
            try:
                return kind()
            except (Stalled, subprocess.SubprocessError) as error:
                if name == "ours":
                    raise
                print(f"{name}: {error} {getattr(error, 'stderr', '')}", file=sys.stderr)
                return Run(0.0)

        return attempt

    return {name: guarded(name, kind) for name, kind in kinds.items()}


def _latency_rows(place: Place, peers: list[Peer], runs: int, count: int) -> list[Row]:
    kinds: dict[str, Callable[[], Any]] = {"ours": lambda: latency.from_another_process(place, count)}
    kinds |= {peer.name: lambda peer=peer: peer_latency(place, peer, count) for peer in peers}  # type: ignore[misc]
    got = interleaved(runs, **kinds)
    rows = []
    for peer in peers:
        for name in ("p50", "p99"):
            ours, theirs = (median(getattr(sample, name) for sample in got[which]) for which in ("ours", peer.name))
            rows.append(
                Row(
                    f"{place.name}: latency {name} : {peer.name}",
                    "ms",
                    ours,
                    theirs,
                    peer.name,
                    at_most=peer.latency_at_most,
                )
            )
    return rows


def command_of(
    peer: Peer, url: str, command: str, count: int, marks: Path | None = None
) -> tuple[list[str], dict[str, str]]:
    """How to call the peer, and its surroundings."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    more = ["--count", str(count), *(("--marks", str(marks)) if marks else ())]
    if peer.node:
        environment |= {
            "MODULES": str(ENVIRONMENTS / peer.name),
            "PGHOST": url.partition("host=")[2],
            "PGUSER": "postgres",
            "PGDATABASE": "bench",
        }
        return ["node", str(ROOT / "bench" / f"peer_{peer.name}.mjs"), command, *more], environment
    python = ENVIRONMENTS / peer.name / "bin" / "python"
    return [str(python), "-m", f"bench.peer_{peer.name}", command, url, *more], environment


def ask(peer: Peer, url: str, command: str, count: int = 0) -> Any:
    """Run the peer's client; what it printed."""
    words, environment = command_of(peer, url, command, count)
    done = subprocess.run(
        words, env=environment, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    return json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else None


def empty(place: Place, peer: Peer) -> str:
    """A database with only the peer in it."""
    if isinstance(place, Postgres):
        place.drop("bench")
        place.execute("postgres", 'create database "bench"')
        url = place.server.url("bench")
    else:
        for file in place.folder.glob("peer.db*"):
            file.unlink()
        url = f"sqlite:///{place.folder / 'peer.db'}"
    ask(peer, url, "setup")
    return url


def start_workers(place: Place, peer: Peer, url: str, size: int, count: int) -> list[Started]:
    started = []
    for index in range(count):
        marks = Marks(place.folder / f"marks-{time.monotonic_ns()}", size)
        words, environment = command_of(peer, url, "worker", size, marks.path)
        started.append(Started(words, place.folder / f"{peer.name}-{index}.log", marks, environment))
    return started


class PeerLook:
    """A look into a peer's SQLite file, through the library that the peers use."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, timeout=10)

    def one(self, query: str) -> Any:
        return self.connection.execute(query).fetchone()

    def close(self) -> None:
        self.connection.close()


def peer_execution(place: Place, peer: Peer, count: int, processes: int) -> Run:
    url = empty(place, peer)
    ask(peer, url, "many", count)
    if isinstance(place, Postgres):
        place.settle()
    look: Any = place.look() if isinstance(place, Postgres) else PeerLook(place.folder / "peer.db")
    started: list[Started] = []
    try:
        started = start_workers(place, peer, url, count, processes)
        run = watch(place, look, peer.unfinished, count, started, PATIENCE)
        check_marks(started, count)
        return run
    finally:
        end_all(started)
        look.close()


def peer_enqueue(place: Place, peer: Peer, command: str, count: int) -> Run:
    return Run(count / float(ask(peer, empty(place, peer), command, count)))


def peer_latency(place: Place, peer: Peer, count: int) -> latency.Latency:
    url = empty(place, peer)
    started = start_workers(place, peer, url, count, 1)
    try:
        time.sleep(1.5)
        began = ask(peer, url, "latency", count)
        marks = started[0].marks
        assert marks
        wait_for(lambda: marks.begun() == count, 20, f"{count} jobs of {peer.name} begun", started, every=0.05)
        return latency.quantiles([(marks.times[number] - began[number]) * 1000 for number in range(count)])
    finally:
        end_all(started)


if __name__ == "__main__":
    sys.exit(main())
