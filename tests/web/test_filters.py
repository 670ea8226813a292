"""The filters of the templates: whatever a job says, its page is shown."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2.defaults import DEFAULT_FILTERS
from litestar.testing import TestClient

from holdfast import App, Failed, current_job
from holdfast.web.app import create
from holdfast.web.pages.drawn import ENVIRONMENT, address
from tests.builds.making import Repository
from tests.builds.yard import Yard
from tests.web.conftest import ADDRESS, Browser, Client

FILTERS = {name: each for name, each in ENVIRONMENT.filters.items() if DEFAULT_FILTERS.get(name) is not each}
# Texts that cost a renderer time or fail in it: thousands of digits, of codes, of titles that do not end, of nothing visible.
EXTREME = (
    "\x1b[" + "1" * 5000 + "m",
    "\x1b[38;5;" + "9" * 5000 + "mred",
    "\x1b[" + "1;" * 100_000 + "m",
    "\x1b[" + "38;5;1;" * 50_000 + "m",
    "\x1b]" * 100_000 + "\nend",
    "\x1bP" * 100_000 + "\nend",
    "\x1b[1" * 100_000,
    "\x1b[" + " " * 100_000,
    "\x9b" * 100_000,
    "\r" * 100_000,
    "`" * 100_001,
    "\u202e" * 100_000,
    "\ud800\x00\ufffe",
)
PIECES = st.sampled_from(
    ("\x1b[", "\x1b]", "\x9b", "\x1b\\", ";", ":", "m", "38;5;", "48;2;", "99999", "\r", "\n", "`")
)
TEXTS = st.lists(st.one_of(PIECES, st.text(st.characters(exclude_categories=()), max_size=5)), max_size=20).map("".join)
NUMBERS = st.one_of(st.integers(-(2**63), 2**63), st.floats())
MOMENTS = st.datetimes(timezones=st.just(UTC))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
OF_TEXTS = ("tone", "plain", "terminal", "worded", "shortened", "pretty")
OF_NUMBERS = ("count", "rate", "span", "pretty", "tone")
OF_MOMENTS = ("moment", "exact", "clock_time")
OF_OTHERS = ("query", "relative", "job_tone", "job_state")  # job_tone and job_state read words of ours alone


def shown(found: Any) -> bytes:
    return str(found).encode("utf-8", "replace")


def test_every_filter_is_tried() -> None:
    assert {*OF_TEXTS, *OF_NUMBERS, *OF_MOMENTS, *OF_OTHERS} == FILTERS.keys()


@given(TEXTS)
def test_no_text_makes_a_filter_fail(text: str) -> None:
    for name in OF_TEXTS:
        shown(FILTERS[name](text))
    shown(address("jobs", text))
    shown(FILTERS["query"]({"job_key": text}))


@pytest.mark.parametrize("text", EXTREME, ids=range(len(EXTREME)))
def test_no_extreme_text_keeps_a_filter_busy(text: str) -> None:
    for name in OF_TEXTS:
        shown(FILTERS[name](text))


@given(NUMBERS)
def test_no_number_makes_a_filter_fail(number: float) -> None:
    for name in OF_NUMBERS:
        shown(FILTERS[name](number))


@given(MOMENTS, MOMENTS)
def test_no_moment_makes_a_filter_fail(moment: datetime, other: datetime) -> None:
    for name in OF_MOMENTS:
        shown(FILTERS[name](moment))
    shown(FILTERS["relative"](moment, other))


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


@given(VALUES)
@example(nested(100_000))
@example(10**5000)
def test_no_value_makes_a_filter_fail(value: Any) -> None:
    shown(FILTERS["pretty"](value))


@pytest.mark.parametrize("say", ["raise", "log"])
def test_a_job_is_shown_whatever_it_says(shop: App, client: Client, say: str) -> None:
    """Its page, the lines of its log, the list of the dead, and the API."""

    @shop.queue("mail").job(retries=0)
    def speak(number: int) -> None:
        current_job().log(EXTREME[number][:4000])
        raise ValueError(EXTREME[number]) if say == "raise" else Failed("no")

    jobs = [speak.enqueue(number=number).id for number in range(len(EXTREME))]
    shop.run_until_idle()
    for job in jobs:
        for path in (f"/jobs/{job}", f"/jobs/{job}/log"):
            assert client.get(path, headers={"Accept": "text/html"}).status_code == 200, (path, job)
        for path in ("", "/log", "/attempts", "/history", "/explain"):
            assert client.get(f"/api/v1/jobs/{job}{path}").status_code == 200, (path, job)
    assert client.get("/jobs?status=dead", headers={"Accept": "text/html"}).status_code == 200
    assert client.get("/", headers={"Accept": "text/html"}).status_code == 200


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_build_is_shown_whatever_its_log_says(shop: App, tmp_path: Path) -> None:
    (tmp_path / "yard").mkdir()
    yard = Yard(shop, tmp_path / "yard", Repository(tmp_path / "repository"))
    build = yard.build(yard.repository.commit("[steps.a]\nrun = []\n"))
    log = yard.projects.log_path(build)
    with TestClient(create(shop, projects=yard.projects), base_url=ADDRESS) as client:
        Browser(client, shop)
        for text in EXTREME:
            log.write_bytes(text.encode("utf-8", "surrogatepass"))
            for path in (f"/builds/{build.id}", f"/builds/{build.id}/log", f"/api/v1/builds/{build.id}/log"):
                assert client.get(path).status_code == 200, (path, text[:20])
