"""Times, durations and lists as people read them."""

from collections.abc import Sequence
from datetime import UTC, datetime

UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def relative(moment: datetime, now: datetime) -> str:
    """`3 min ago` or `in 3 min`."""
    seconds = (moment - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def span(seconds: float) -> str:
    """A duration in the one unit that suits it."""
    for size, unit in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    if seconds >= 1:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds * 1000:.3g} ms"


def moment(value: datetime) -> str:
    """A time of UTC to the millisecond."""
    return value.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def when(value: datetime, now: datetime) -> str:
    """A time of UTC to the second, and how far it is from now."""
    shown = value.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat(sep=" ")
    return f"{shown}Z ({relative(value, now)})"


def listing(names: Sequence[str], noun: str, most: int = 5) -> str:
    """`labels gpu and big`."""
    if not names:
        return f"no {noun}"
    quoted = [f"`{name}`" for name in names[:most]] + (["others"] if len(names) > most else [])
    return f"{noun if len(names) == 1 else noun + 's'} {joined(quoted)}"


def joined(words: Sequence[str]) -> str:
    """`one, two and three`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def shortened(text: str, most: int = 200) -> str:
    """The text on one line, cut where it gets too long."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def these(ids: Sequence[int], count: int, noun: str, most: int = 5) -> str:
    """`jobs 1, 2, 3, 4, 5 and 12 others`."""
    if not ids:
        return "nothing"
    shown = [str(each) for each in ids[:most]]
    left = count - len(shown)
    if left:
        shown.append(f"{left} {'other' if left == 1 else 'others'}")
    return f"{noun if count == 1 else noun + 's'} {joined(shown)}"
