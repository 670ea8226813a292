"""The pytest plugin behind `make faults`: collects what fault tests say, and writes the fault report.

- `@pytest.mark.fault(6, "the disk is full")` names an item of the fault list that a test holds.
- With `--fault-report PAGE` samples are left to the ordinary tests, and the page is written at the end, failures included.
- Results are kept in `build/faults.json`: a narrower run (`ARGS="-k …"`) replaces its own tests on the page and no others.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.faults.page import written
from tests.faults.results import Fault, Result, Told

TOLD, ITEMS = "told", "items"
KEPT = Path(__file__).parents[2] / "build" / "faults.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault-report", metavar="PAGE", help="write what the fault tests found to this page")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fault(item, injected): the item of the fault list that this test holds")
    page = config.getoption("--fault-report")
    if page and not hasattr(config, "workerinput"):
        narrowed = bool(config.option.keyword) or config.args != config.getini("testpaths")
        config.pluginmanager.register(Report(Path(page), KEPT, narrowed))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        found = [list(mark.args) for mark in item.iter_markers("fault")]
        if found:
            item.user_properties.append((ITEMS, found))
    if config.getoption("--fault-report"):
        samples = [item for item in items if "sample" in _parameters(item)]
        config.hook.pytest_deselected(items=samples)
        items[:] = [item for item in items if "sample" not in _parameters(item)]


def _parameters(item: pytest.Item) -> list[str]:
    return item.callspec.id.split("-") if hasattr(item, "callspec") else []


@pytest.fixture
def fault(request: pytest.FixtureRequest) -> Iterator[Fault]:
    """Says what the test does, for the fault report."""
    told = Told([], None, 0, False, {})
    yield Fault(told)
    request.node.user_properties.append((TOLD, msgspec.to_builtins(told)))


class Report:
    """Everything this run found, and what was kept of earlier ones."""

    def __init__(self, page: Path, kept: Path, narrowed: bool) -> None:
        self.page, self.kept = page, kept
        self.results: dict[str, Result] = {}
        if narrowed and kept.exists():
            found = msgspec.json.decode(kept.read_bytes(), type=list[Result])
            self.results = {result.test: result for result in found}
        self.began = time.monotonic()
        self.ended: dict[str, list[pytest.TestReport]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ended.setdefault(report.nodeid, []).append(report)
        if report.when == "teardown":
            self.results[report.nodeid] = result_of(report.nodeid, self.ended.pop(report.nodeid))
            self.kept.parent.mkdir(exist_ok=True)
            self.kept.write_bytes(msgspec.json.encode(list(self.results.values())))

    def pytest_sessionfinish(self) -> None:
        if self.results:
            self.page.write_text(written(list(self.results.values())))


def result_of(test: str, phases: list[pytest.TestReport]) -> Result:
    said: dict[str, Any] = dict(phases[-1].user_properties)
    told = msgspec.convert(said.get(TOLD, {}), Told)
    bad = [phase for phase in phases if phase.failed]
    skipped = [phase for phase in phases if phase.skipped]
    verdict = "FAILED" if bad else "not run" if skipped else "held"
    return Result(
        test=test,
        items=tuple((number, *more, "")[:2] for number, *more in said.get(ITEMS, [])),
        told=told,
        store=store_of(test, told),
        seconds=sum(phase.duration for phase in phases),
        verdict=verdict,
        reason=_reason(bad or skipped),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def store_of(test: str, told: Told) -> str:
    """As its parameters say, or the test itself, or the name of its file."""
    path, _, parameters = test.partition("[")
    named = (name for place in (parameters, told.store, path) for name in ("sqlite", "postgres") if name in place)
    return next(named, "")


def _reason(phases: list[pytest.TestReport]) -> str:
    """What a person needs to know first of a test that failed or was not run."""
    for phase in phases:
        if isinstance(phase.longrepr, tuple):
            return str(phase.longrepr[2])
        crash = getattr(phase.longrepr, "reprcrash", None)
        return str(crash.message if crash else phase.longrepr).strip().partition("\n")[0]
    return ""
