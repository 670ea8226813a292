"""Other engines of workflows beside ours: the same fan-out and the same chain, in turns."""

import json
import os
import shutil
import subprocess
import sys
from statistics import median

from msgspec import Struct

from bench import workflows
from bench.places import Place, Postgres
from bench.processes import ENVIRONMENTS, ROOT, Stalled
from bench.report import Row
from bench.workflows import LENGTH, WIDTH, Cost

PATIENCE = 600


class FlowPeer(Struct, frozen=True):
    """An engine, where it runs, and how much of it: a slow one gets a narrower fan-out, and fewer runs."""

    name: str
    packages: tuple[str, ...]
    places: tuple[str, ...]
    width: int = WIDTH
    runs: int = 3
    needs: str = ""  # a program that must be there
    python: str = ""
    note: str = ""


FLOW_PEERS = (
    FlowPeer("dbos", ("dbos", "psycopg[binary]"), ("postgres", "sqlite")),
    FlowPeer(
        "celery",
        ("celery", "redis", "packaging"),
        ("sqlite",),
        needs="redis-server",
        note="on Redis, which forgets in a crash",
    ),
    # The server of Prefect 3.8 does not start with a newer FastAPI.
    FlowPeer("prefect", ("prefect", "fastapi<0.140"), ("sqlite",), width=200, runs=1, note="a fan-out of 200"),
)


def lacking(peer: Struct) -> str:
    """Why it cannot run here, if it cannot."""
    needs = getattr(peer, "needs", "")
    return "" if not needs or shutil.which(needs) else f"it needs {needs}, which is not here"


def compared(place: Place, peers: list[FlowPeer], runs: int) -> list[Row]:
    """Milliseconds for each task and each step."""
    samples: dict[str, list[Cost]] = {"ours": [], **{peer.name: [] for peer in peers}}
    for _ in range(runs):
        samples["ours"].append(workflows.ours(place, 3))
        for peer in peers:
            try:
                samples[peer.name].append(cost(place, peer))
            except (Stalled, subprocess.SubprocessError, ValueError) as error:
                print(f"{peer.name}: {error} {getattr(error, 'stderr', '')}", file=sys.stderr)
    rows = []
    for name, what in (("fan", "fan-out, for each task"), ("chain", "chain, for each step")):
        ours = median(getattr(sample, name) for sample in samples["ours"])
        for peer in peers:
            found = [getattr(sample, name) for sample in samples[peer.name]]
            theirs, note = (median(found), peer.note) if found else (None, "the peer's run failed; see above")
            rows.append(Row(f"{place.name}: {what} : {peer.name}", "ms", ours, theirs, peer.name, note=note))
    return rows


def cost(place: Place, peer: FlowPeer) -> Cost:
    command = [str(ENVIRONMENTS / peer.name / "bin" / "python"), "-m", f"bench.peer_{peer.name}", empty(place)]
    command += ["--width", str(peer.width), "--length", str(LENGTH), "--runs", str(peer.runs)]
    surroundings = _surroundings(place)
    ended = subprocess.run(
        command, env=surroundings, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    found = json.loads(ended.stdout.strip().splitlines()[-1])
    return Cost(
        median(found["fan"]) / (peer.width + 2) * 1000,
        median(found["chain"]) / LENGTH * 1000,
    )


def empty(place: Place) -> str:
    """A database with nothing of ours in it."""
    if isinstance(place, Postgres):
        place.drop("peer")
        place.execute("postgres", 'create database "peer"')
        return place.server.url("peer")
    for file in place.folder.glob("peer.db*"):
        file.unlink()
    return f"sqlite:///{place.folder / 'peer.db'}"


def _surroundings(place: Place) -> dict[str, str]:
    """What peers leave behind goes to the folder of the measurement."""
    home = place.folder / "peer-home"
    home.mkdir(exist_ok=True)
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "PREFECT_HOME": str(home),
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
