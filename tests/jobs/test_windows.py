"""Time windows: how they are written, and when they open and close, over changes of the clock too."""

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.jobs.windows import DAY, EVERY_DAY, Window, closes, is_open, opens, parse, parse_all, place

HOUR = 3600
MINUTE = timedelta(minutes=1)
AMSTERDAM = ZoneInfo("Europe/Amsterdam")
NOON = datetime(2026, 6, 17, 12, 0, tzinfo=UTC)  # a Wednesday


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.claim("W5")
@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("09:30-17:00", Window(9 * HOUR + 1800, 17 * HOUR)),
        ("22:00-06:00", Window(22 * HOUR, 30 * HOUR)),
        ("03:47:18-04:11:59", Window(3 * HOUR + 47 * 60 + 18, 4 * HOUR + 11 * 60 + 59)),
        ("00:00-24:00", Window(0, DAY)),
        ("22:00-00:00", Window(22 * HOUR, DAY)),
        ("22:00-24:00:00", Window(22 * HOUR, DAY)),
        ("mon-fri 22:00-06:00 Europe/Amsterdam", Window(22 * HOUR, 30 * HOUR, (0, 1, 2, 3, 4), "Europe/Amsterdam")),
        ("sat,sun 10:00-12:00 UTC", Window(10 * HOUR, 12 * HOUR, (5, 6))),
        ("fri-mon 10:00-12:00", Window(10 * HOUR, 12 * HOUR, (0, 4, 5, 6))),
        ("sun,mon-wed,tue 10:00-12:00", Window(10 * HOUR, 12 * HOUR, (0, 1, 2, 6))),
        ("mon-sun 10:00-12:00", Window(10 * HOUR, 12 * HOUR, EVERY_DAY)),
        ("tue-tue 10:00-12:00", Window(10 * HOUR, 12 * HOUR, (1,))),
        ("  Mon-FRI   10:00-12:00  ", Window(10 * HOUR, 12 * HOUR, (0, 1, 2, 3, 4))),
    ],
)
def test_a_window_is_read_as_written(text: str, window: Window) -> None:
    assert parse(text) == window


@pytest.mark.claim("W5")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "does not have the form"),
        ("always", "does not have the form"),
        ("22:00", "does not have the form"),
        ("22:00 - 06:00", "does not have the form"),
        ("mon tue 22:00-06:00", "does not have the form"),
        ("22:00-06:00 UTC UTC", "does not have the form"),
        ("-01:00-06:00", "does not have the form"),
        ("9:00-17:00", "9:00 is not a time; .* two digits"),
        ("09:00-17", "17 is not a time"),
        ("09:00-17:00:00:00", "17:00:00:00 is not a time"),
        ("25:00-06:00", "there is no 25:00 on a clock"),
        ("22:60-06:00", "there is no 22:60 on a clock"),
        ("22:00-06:00:60", "there is no 06:00:60 on a clock"),
        ("22:00-24:01", "there is no 24:01 on a clock"),
        ("22:00-24:00:01", "there is no 24:00:01 on a clock"),
        ("24:00-06:00", "24:00 can only be an end; .* starts at 00:00"),
        ("10:00-10:00", "ends when it starts; .* 24:00"),
        ("00:00-00:00:00", "ends when it starts"),
        ("mon-fry 10:00-12:00", "'fry' in 'mon-fry' is not a day; the days are mon tue wed thu fri sat sun"),
        ("mon, 10:00-12:00", "'' in 'mon,' is not a day"),
        ("mon-wed-fri 10:00-12:00", "'wed-fri' in 'mon-wed-fri' is not a day"),
        ("10:00-12:00 Europe/Amsterdan", "did you mean Europe/Amsterdam"),
        ("10:00-12:00 europe/amsterdam", "did you mean Europe/Amsterdam"),
        ("10:00-12:00 Amsterdam", "did you mean Europe/Amsterdam"),
        ("10:00-12:00 Qqqqqq", "'Qqqqqq' is not a known time zone; zones have IANA names"),
        ("10:00-12:00 ../../etc/passwd", "is not a known time zone"),
        ("10:00-12:00 Europe", "is not a known time zone"),
        ("10:00-12:00 localtime", "is not a known time zone"),
        ("\u0661\u0660:00-12:00", "does not have the form"),
    ],
)
def test_a_wrong_window_is_refused_in_one_paragraph_with_its_text_and_the_cure(text: str, complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint) as refusal:
        parse(text)
    assert repr(text) in str(refusal.value)
    assert "A window looks like" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("wrong", [None, 5, ["22:00-06:00"]])
def test_a_window_that_is_no_text_is_refused(wrong: object) -> None:
    with pytest.raises(Invalid, match="does not have the form"):
        parse(wrong)  # type: ignore[arg-type]


def test_the_example_in_every_refusal_is_itself_a_window() -> None:
    for wrong in ("", "9:00-17:00", "25:00-06:00", "24:00-06:00", "10:00-10:00", "fry 10:00-12:00", "10:00-12:00 Qqq"):
        with pytest.raises(Invalid) as refusal:
            parse(wrong)
        parse(str(refusal.value).rsplit("looks like ", 1)[1].strip("'."))


@pytest.mark.claim("W5")
def test_a_list_is_read_in_order_and_one_text_instead_of_a_list_is_refused() -> None:
    assert parse_all(["09:00-10:00", "mon 22:00-06:00"]) == (parse("09:00-10:00"), parse("mon 22:00-06:00"))
    assert parse_all([]) == ()
    with pytest.raises(Invalid, match=r"write \['22:00-06:00'\]"):
        parse_all("22:00-06:00")
    with pytest.raises(Invalid, match="'25:00-06:00'"):
        parse_all(["22:00-06:00", "25:00-06:00"])


@pytest.mark.claim("W5")
def test_without_windows_a_job_runs_when_wanted_or_now() -> None:
    assert place((), None, NOON) == NOON
    assert place((), NOON + MINUTE, NOON) == NOON + MINUTE
    assert is_open((), NOON)
    assert opens((), NOON) == NOON
    assert closes((), NOON) is None


@pytest.mark.claim("W5")
def test_without_a_wanted_time_it_is_the_first_opening_from_now() -> None:
    assert place(parse_all(["22:00-06:00"]), None, NOON) == utc("2026-06-17T22:00")
    assert place(parse_all(["11:00-13:00"]), None, NOON) == NOON


@pytest.mark.claim("W5")
def test_a_wanted_time_inside_is_kept_and_one_outside_moves_to_the_next_opening() -> None:
    windows = parse_all(["22:00-06:00"])
    inside = utc("2026-06-19T03:00:00.000001")
    assert place(windows, inside, NOON) == inside
    assert place(windows, utc("2026-06-19T06:30"), NOON) == utc("2026-06-19T22:00")


@pytest.mark.claim("W5")
def test_the_start_belongs_to_the_window_and_the_end_does_not() -> None:
    windows = parse_all(["03:47:18-04:11:59"])
    instant = timedelta(microseconds=1)
    start, end = utc("2026-06-17T03:47:18"), utc("2026-06-17T04:11:59")
    assert [is_open(windows, at) for at in (start - instant, start, end - instant, end)] == [False, True, True, False]
    assert opens(windows, end) == start + timedelta(days=1)
    assert closes(windows, start) == end


@pytest.mark.claim("W5")
def test_days_name_the_day_on_which_the_window_opens() -> None:
    windows = parse_all(["fri 22:00-06:00"])
    assert is_open(windows, utc("2026-06-20T05:59"))  # Saturday morning, opened on Friday
    assert not is_open(windows, utc("2026-06-19T05:59"))  # Friday morning
    assert opens(windows, utc("2026-06-20T06:00")) == utc("2026-06-26T22:00")


@pytest.mark.claim("W5")
def test_the_zone_of_the_window_decides_what_its_clock_and_day_are() -> None:
    windows = parse_all(["mon 00:00-06:00 Europe/Amsterdam"])
    assert opens(windows, NOON) == utc("2026-06-21T22:00")  # still Sunday in UTC
    assert opens(windows, utc("2026-01-01T00:00")) == utc("2026-01-04T23:00")


@pytest.mark.claim("W5")
def test_of_several_windows_the_next_to_open_counts() -> None:
    windows = parse_all(["sat 10:00-12:00", "thu 10:00-12:00", "22:00-23:00"])
    assert opens(windows, NOON) == utc("2026-06-17T22:00")
    assert opens(windows, utc("2026-06-17T23:00")) == utc("2026-06-18T10:00")


@pytest.mark.claim("W5")
def test_windows_that_overlap_or_touch_close_together() -> None:
    windows = parse_all(["10:00-13:00", "12:30-14:00", "14:00-15:00", "16:00-17:00"])
    assert closes(windows, NOON) == utc("2026-06-17T15:00")


@pytest.mark.claim("W5")
def test_a_moment_that_is_closed_already_is_its_own_close() -> None:
    assert closes(parse_all(["22:00-06:00"]), NOON) == NOON


@pytest.mark.claim("W5")
@pytest.mark.parametrize(
    "texts",
    [
        ["00:00-24:00"],
        ["00:00-24:00 America/Sao_Paulo"],
        ["00:00-12:00", "12:00-00:00"],
        ["mon-fri 00:00-24:00 Europe/Amsterdam", "sat,sun 00:00-24:00 Europe/Amsterdam"],
        ["06:00-18:00", "17:00-08:00 Europe/London"],
    ],
)
def test_windows_that_never_close_say_so(texts: list[str]) -> None:
    assert closes(parse_all(texts), NOON) is None


@pytest.mark.claim("W5")
def test_windows_that_close_only_after_a_change_of_the_clock_close_then() -> None:
    windows = parse_all(["06:00-18:00 UTC", "18:00-06:00 Europe/London"])
    assert closes(windows, utc("2026-01-15T12:00")) == utc("2026-03-29T05:00")


@pytest.mark.claim("W5")
def test_a_skipped_start_opens_at_the_next_valid_instant() -> None:
    windows = parse_all(["02:30-04:00 Europe/Amsterdam"])
    assert opens(windows, utc("2026-03-29T00:00")) == utc("2026-03-29T01:00")
    assert closes(windows, utc("2026-03-29T01:00")) == utc("2026-03-29T02:00")


@pytest.mark.claim("W5")
def test_a_skipped_end_closes_at_the_next_valid_instant() -> None:
    windows = parse_all(["01:00-02:30 Europe/Amsterdam"])
    assert closes(windows, utc("2026-03-29T00:30")) == utc("2026-03-29T01:00")


@pytest.mark.claim("W5")
@pytest.mark.parametrize("written", ["02:10-02:50", "02:20-03:00"])
def test_a_window_that_is_skipped_as_a_whole_opens_at_the_next_valid_instant_for_its_length(written: str) -> None:
    windows = parse_all([f"{written} Europe/Amsterdam"])
    assert opens(windows, utc("2026-03-29T00:00")) == utc("2026-03-29T01:00")
    assert closes(windows, utc("2026-03-29T01:00")) == utc("2026-03-29T01:40")
    assert opens(windows, utc("2026-03-29T01:40")) > utc("2026-03-30T00:00")


@pytest.mark.claim("W5")
def test_a_repeated_start_opens_once_and_stays_open() -> None:
    windows = parse_all(["02:30-04:00 Europe/Amsterdam"])
    assert opens(windows, utc("2026-10-25T00:00")) == utc("2026-10-25T00:30")
    assert closes(windows, utc("2026-10-25T00:30")) == utc("2026-10-25T03:00")


@pytest.mark.claim("W5")
def test_a_repeated_end_closes_the_first_time() -> None:
    windows = parse_all(["01:00-02:30 Europe/Amsterdam"])
    assert closes(windows, utc("2026-10-25T00:00")) == utc("2026-10-25T00:30")


@pytest.mark.claim("W5")
def test_a_window_that_is_repeated_as_a_whole_is_open_the_first_time_only() -> None:
    windows = parse_all(["02:10-02:50 Europe/Amsterdam"])
    assert closes(windows, utc("2026-10-25T00:10")) == utc("2026-10-25T00:50")
    assert opens(windows, utc("2026-10-25T00:50")) == utc("2026-10-26T01:10")


@pytest.mark.claim("W5")
def test_a_repeated_moment_given_in_its_own_zone_is_told_apart_by_its_fold() -> None:
    windows = parse_all(["02:10-02:50 Europe/Amsterdam"])
    first = datetime(2026, 10, 25, 2, 30, tzinfo=AMSTERDAM)
    assert is_open(windows, first)
    assert not is_open(windows, first.replace(fold=1))
    assert place(windows, first, NOON) == utc("2026-10-25T00:30")


@pytest.mark.claim("W5")
def test_a_midnight_that_the_clock_skips_keeps_whole_days_together() -> None:
    windows = parse_all(["thu,fri 00:00-24:00 Africa/Cairo"])  # Friday begins at 01:00
    assert closes(windows, utc("2026-04-23T12:00")) == utc("2026-04-24T21:00")


@pytest.mark.claim("W5")
def test_a_day_that_a_zone_leaves_out_does_not_hide_the_next_opening() -> None:
    windows = parse_all(["fri 10:00-12:00 Pacific/Apia"])  # there was no 30 December 2011 in Samoa
    assert opens(windows, utc("2011-12-30T00:00")) == utc("2011-12-30T10:00")
    assert closes(windows, utc("2011-12-30T10:00")) == utc("2011-12-30T12:00")


@pytest.mark.claim("W5")
@pytest.mark.parametrize("ask", [is_open, opens, closes, lambda windows, at: place(windows, at, NOON)])
@pytest.mark.parametrize("texts", [[], ["22:00-06:00"], ["00:00-24:00"]])
def test_a_naive_time_is_refused(ask, texts: list[str]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Invalid, match="2026-06-17T12:00:00 has no time zone"):
        ask(parse_all(texts), NOON.replace(tzinfo=None))


@pytest.mark.claim("W5")
def test_a_naive_now_is_refused_where_it_is_used() -> None:
    with pytest.raises(Invalid, match="has no time zone"):
        place((), None, NOON.replace(tzinfo=None))


def test_a_time_at_the_end_of_the_calendar_is_refused_only_where_a_window_needs_the_days_around_it() -> None:
    last, first = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
    assert place((), last, NOON) == last
    for at in (last, first):
        with pytest.raises(Invalid, match="too near the end of the calendar"):
            opens(parse_all(["mon 22:00-06:00"]), at)


@pytest.mark.claim("W5")
def test_every_answer_is_in_utc() -> None:
    local = datetime(2026, 6, 17, 12, 0, tzinfo=AMSTERDAM)
    for windows in (parse_all([]), parse_all(["11:00-13:00 Europe/Amsterdam"]), parse_all(["mon 11:00-13:00"])):
        assert place(windows, local, local).tzinfo is UTC
        assert opens(windows, local).tzinfo is UTC
        assert (closes(windows, local) or NOON).tzinfo is UTC


CHANGES = {
    "Europe/Amsterdam": [utc("2026-03-29T01:00"), utc("2026-10-25T01:00")],
    "America/New_York": [utc("2026-03-08T07:00"), utc("2026-11-01T06:00")],
    "Australia/Lord_Howe": [utc("2026-04-04T15:00"), utc("2026-10-03T15:30")],
}
BEFORE, AFTER = timedelta(days=4), timedelta(days=11)


class Oracle:
    """The rule of W5 minute by minute: look at the zone's clock and see when it first shows a time or a later one."""

    def __init__(self, change: datetime) -> None:
        self.start = change - BEFORE
        self.minutes = [self.start + number * MINUTE for number in range((BEFORE + AFTER) // MINUTE)]

    @cache  # noqa: B019
    def latest_shown(self, zone: str) -> list[datetime]:
        shown = (minute.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for minute in self.minutes)
        return list(accumulate(shown, max))

    def open_minutes(self, windows: list[Window]) -> list[bool]:
        open_ = [False] * len(self.minutes)
        for window in windows:
            clock = self.latest_shown(window.zone)
            for number in range(-2, (BEFORE + AFTER).days + 2):
                midnight = datetime.combine(self.start.date(), datetime.min.time()) + timedelta(days=number)
                if midnight.weekday() not in window.days:
                    continue
                opening = bisect_left(clock, midnight + timedelta(seconds=window.start))
                closing = bisect_left(clock, midnight + timedelta(seconds=window.end))
                if opening == closing and 0 < opening < len(clock):
                    closing = opening + (window.end - window.start) // 60
                open_[opening:closing] = [True] * (min(closing, len(open_)) - opening)
        return open_


ORACLES = {change: Oracle(change) for changes in CHANGES.values() for change in changes}

ANY_WINDOW = st.builds(
    lambda start, length, days, zone: Window(start * 60, (start + length) * 60, tuple(sorted(days)), zone),
    # Mostly the small hours, where clocks change.
    st.integers(0, 5 * 60) | st.integers(0, 24 * 60 - 1),
    st.integers(1, 90) | st.integers(1, 24 * 60),
    st.just(EVERY_DAY) | st.sets(st.integers(0, 6), min_size=1),
    st.sampled_from([*CHANGES, "UTC"]),
)


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[Window], Oracle, int]:
    """Windows, the oracle of a change of the clock, and the number of a minute near that change."""
    zone = draw(st.sampled_from(sorted(CHANGES)))
    windows = draw(st.lists(ANY_WINDOW, min_size=1, max_size=3))
    windows[0] = Window(windows[0].start, windows[0].end, windows[0].days, zone)
    around = BEFORE // MINUTE
    minute = draw(st.integers(around - 180, around + 180) | st.integers(around - 1440, around + 1440))
    return windows, ORACLES[draw(st.sampled_from(CHANGES[zone]))], minute


@pytest.mark.claim("W5")
@settings(max_examples=400)
@given(questions())
def test_openings_are_those_of_a_clock_watched_minute_by_minute(question: tuple[list[Window], Oracle, int]) -> None:
    windows, oracle, number = question
    open_, at = oracle.open_minutes(windows), oracle.minutes[number]
    assert is_open(windows, at) == open_[number]
    assert opens(windows, at) == oracle.minutes[open_.index(True, number)]


@pytest.mark.claim("W5")
@settings(max_examples=400)
@given(questions())
def test_closes_are_those_of_a_clock_watched_minute_by_minute(question: tuple[list[Window], Oracle, int]) -> None:
    windows, oracle, number = question
    open_, at = oracle.open_minutes(windows), oracle.minutes[number]
    answer = closes(windows, at)
    # The oracle's last day is left out: windows that open after it are not in it.
    if False in open_[number : -24 * 60]:
        assert answer == oracle.minutes[open_.index(False, number)]
    else:
        assert answer is None or answer >= oracle.minutes[-24 * 60]


@pytest.mark.claim("W5")
@settings(max_examples=400)
@given(
    st.lists(ANY_WINDOW, max_size=3),
    st.none() | st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
)
def test_a_job_is_always_placed_in_an_opening_and_never_before_it_is_wanted(
    windows: list[Window], wanted: datetime | None
) -> None:
    placed, asked = place(windows, wanted, NOON), wanted or NOON
    assert is_open(windows, placed)
    assert asked <= placed <= asked + timedelta(days=8)
    assert (placed == asked) == is_open(windows, asked)
    assert place(windows, placed, NOON) == placed


@pytest.mark.claim("W5")
@settings(max_examples=400)
@given(st.lists(ANY_WINDOW, min_size=1, max_size=3), st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)))
def test_an_opening_lasts_up_to_its_close_and_not_beyond(windows: list[Window], naive: datetime) -> None:
    opening = opens(windows, naive.replace(tzinfo=UTC))
    closing = closes(windows, opening)
    if closing is not None:
        assert closing > opening
        assert is_open(windows, closing - timedelta(microseconds=1))
        assert not is_open(windows, closing)
