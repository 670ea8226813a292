"""What can be said of step graphs without running them: cycles, and an order in which steps can be read."""

from collections.abc import Mapping, Sequence


def cycle(after: Mapping[str, Sequence[str]]) -> list[str] | None:
    """The names along one cycle, the first one again at the end; None if there is none."""
    state: dict[str, int] = {}  # 1: on the way, 2: done
    for first in after:
        path: list[str] = []
        todo: list[tuple[str, int]] = [(first, 0)]
        while todo:
            name, at = todo.pop()
            if at == 0:
                if state.get(name) == 2:
                    continue
                state[name] = 1
                path.append(name)
            following = [other for other in after.get(name, ()) if other in after]
            if at < len(following):
                todo.append((name, at + 1))
                found = following[at]
                if state.get(found) == 1:
                    return [*path[path.index(found) :], found]
                todo.append((found, 0))
            else:
                state[name] = 2
                path.pop()
    return None


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
