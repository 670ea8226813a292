"""What can be said of step graphs without running them: circles, and an order in which steps can be read."""

from collections.abc import Iterator, Mapping, Sequence


def cycles(after: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Circles, each as the names along it and the first one again at the end; without one link of each there are none."""
    found: list[list[str]] = []
    path: dict[str, Iterator[str]] = {}  # the steps on the way, each with what is still to be looked at behind it
    seen: set[str] = set()
    for first in after:
        following: str | None = first if first not in seen else None
        while following is not None or path:
            if following is None:
                path.popitem()
            elif following in path:
                names = list(path)
                found.append([*names[names.index(following) :], following])
            elif following in after and following not in seen:
                seen.add(following)
                path[following] = iter(after[following])
            following = next(path[next(reversed(path))], None) if path else None
    return found


def in_order(after: Mapping[str, Sequence[str]], phases: Mapping[str, int]) -> list[str]:
    """Every step behind what it comes after, phase by phase, otherwise as written. For graphs without cycles."""
    placed: dict[str, None] = {}
    for phase in sorted(set(phases.values())):
        waiting = [name for name in after if phases[name] == phase]
        while waiting:
            ready = [name for name in waiting if all(other in placed or other not in after for other in after[name])]
            if not ready:
                break
            placed.update(dict.fromkeys(ready))
            waiting = [name for name in waiting if name not in placed]
    return [*placed, *(name for name in after if name not in placed)]
