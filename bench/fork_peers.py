"""Other queues whose handlers run in processes of their own, beside ours that do: in turns."""

import json
import os
import subprocess
import sys
from statistics import median

from msgspec import Struct

from bench import endurance
from bench.places import Place
from bench.processes import ENVIRONMENTS, ROOT, Stalled
from bench.report import Row

PATIENCE = 180


class ForkPeer(Struct, frozen=True):
    """A queue, where ours stands beside it, and how many jobs of each."""

    name: str
    packages: tuple[str, ...]
    places: tuple[str, ...]
    jobs: int
    ours: int
    at_least: float
    needs: str = ""  # a program that must be there
    python: str = ""
    note: str = ""


FORK_PEERS = (
    ForkPeer(
        "rq",
        ("rq", "redis"),
        ("postgres", "sqlite"),
        600,
        20_000,
        at_least=5,
        needs="redis-server",
        note="a fork for each job, on Redis",
    ),
)


def compared(place: Place, peers: list[ForkPeer], runs: int, size: int) -> list[Row]:
    rows = []
    for peer in peers:
        ours, theirs = [], []
        for _ in range(runs):
            ours.append(endurance.isolated(place, peer.ours // size).rate)
            try:
                theirs.append(rate(peer, peer.jobs // size))
            except (Stalled, subprocess.SubprocessError, ValueError) as error:
                print(f"{peer.name}: {error} {getattr(error, 'stderr', '')}", file=sys.stderr)
        rows.append(
            Row(
                f"{place.name}: handlers in processes : {peer.name}",
                "jobs/s",
                median(ours),
                median(theirs) if theirs else None,
                peer.name,
                at_least=peer.at_least,
                failed=not theirs,
                note=peer.note if theirs else "the peer's run failed; see above",
            )
        )
    return rows


def rate(peer: ForkPeer, count: int) -> float:
    command = [str(ENVIRONMENTS / peer.name / "bin" / "python"), "-m", f"bench.peer_{peer.name}", str(count)]
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        command, env=surroundings, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    return float(json.loads(ended.stdout.strip().splitlines()[-1]))
