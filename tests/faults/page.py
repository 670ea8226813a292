"""The page of the fault report: every item of the fault list with its tests, what they injected, and what held."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from bench.report import described, versions
from docs.generator.text import table
from tests.faults.results import Result

ITEMS = {
    1: "A worker is killed at any store call",
    2: "A worker is stopped, another finishes its job, and it goes on",
    3: "The same host and process number, several sweepers, sweepers that die or know old things",
    4: "Clocks that jump, change to summer time, or disagree",
    5: "PostgreSQL restarts, fails over, refuses, forgets",
    6: "SQLite: strangers, full disks, power cuts, backups",
    7: "Handlers that crash, hang, fork, or flood",
    8: "Answers from outside at the wrong moment",
    9: "One key a hundred times at once, callers' transactions",
    10: "Limits lowered, factors above them, holders that die",
    11: "Workflows under kill -9",
    12: "Old and new programs together",
    13: "A million finished and a million waiting jobs",
    14: "Simulation",
    15: "Soak",
}
HEAD = ("what must hold", "on", "injected", "seed", "measured", "seconds", "result")
OPENING = """# Fault report

Written by `make faults`: fault tests at their full size, with what each injected and whether what must
hold held. What was not run is not in it, and a test that failed stands here as failed. *I1–I10* are the [invariants](../tests/invariants.py) that are
checked over the whole database, I10 where there are builds; *twice* counts handlers that were called
once more than their job needed, which [R1](guarantees.md) allows; *recovery* is the time until work went on.
"""


def written(results: Sequence[Result]) -> str:
    """The whole page."""
    parts = [OPENING, _circumstances(results), _failures(results)]
    named = {number for result in results for number, _ in result.items}
    for number, title in ITEMS.items():
        found = [result for result in results if number in dict(result.items)]
        body = table(HEAD, [_line(result, number) for result in joined(found)]) if found else "Not part of this run.\n"
        parts.append(f"## {number}. {title}\n\n{body}")
    others = [result for result in results if not result.items]
    if others:
        parts.append(f"## Others\n\n{table(HEAD, [_line(result, None) for result in others])}")
    assert named <= ITEMS.keys(), f"there is no item {named - ITEMS.keys()} in the fault list"
    return "\n".join(part for part in parts if part)


def joined(results: Sequence[Result]) -> list[Result]:
    """Seeds that were played one stretch after the other, and held, are one line."""
    lines: list[Result] = []
    for result in results:
        before = lines[-1] if lines else result
        was, now = before.told.seeds, result.told.seeds
        same = (before.sentence, before.store) == (result.sentence, result.store)
        held = before.verdict == result.verdict == "held"
        if same and held and was and now and was[1] + 1 == now[0]:
            told = structs.replace(before.told, seeds=(was[0], now[1]))
            lines[-1] = structs.replace(before, told=told, seconds=before.seconds + result.seconds)
        else:
            lines.append(result)
    return lines


def _circumstances(results: Sequence[Result]) -> str:
    machine, used = described(), versions()
    times = sorted(result.time for result in results)
    counts = {
        verdict: sum(result.verdict == verdict for result in results) for verdict in ("held", "FAILED", "not run")
    }
    seconds = sum(result.seconds for result in results)
    rows = [
        ("time", f"{times[0]} to {times[-1]}"),
        ("tests", ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)),
        ("duration", f"{seconds / 60:.0f} min in the tests themselves"),
        (
            "machine",
            f"{machine['cores']} cores, {machine['memory_gb']} GB, {machine['processor']}, {machine['system']}",
        ),
        ("versions", ", ".join(f"{name} {value}" for name, value in used.items())),
    ]
    return table(("", ""), rows)


def _failures(results: Sequence[Result]) -> str:
    bad = [result for result in results if result.failed]
    if not bad:
        return ""
    lines = (f"- `{result.test}`: {result.reason}" for result in bad)
    return "## What did not hold\n\n" + "\n".join(lines) + "\n"


def _line(result: Result, item: int | None) -> tuple[Any, ...]:
    told = result.told
    injected = ", ".join(f"{what} × {times:,}" if times != 1 else what for what, times in told.injected)
    named = "" if item is None else dict(result.items)[item]
    verdict = f"**{result.verdict}**" if result.failed else result.verdict
    if result.verdict == "not run":
        verdict += f": {result.reason}"
    return (
        result.sentence,
        {"postgres": "PostgreSQL", "sqlite": "SQLite"}.get(result.store, result.store),
        injected or named,
        " to ".join(f"{seed:,}" for seed in told.seeds) if told.seeds else told.seed,
        "; ".join(_measures(result)),
        f"{result.seconds:.1f}",
        verdict,
    )


def _measures(result: Result) -> Iterator[str]:
    if result.told.checks:
        yield f"I1–I{10 if result.told.builds else 9} checked {result.told.checks} ×"
    for name, value in result.told.figures.items():
        shown = f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
        unit = " s" if name == "recovery" else ""
        yield f"{name.replace('_', ' ')} {shown}{unit}"
