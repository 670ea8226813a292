"""What Holdfast needs at run time, with all extras: the closure of its requirements, as the environment has them.

- A requirement counts if it holds on one of the Pythons and systems that Holdfast supports.
- Versions are those of `constraints.txt`; an environment that has others is refused.
"""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = "holdfast"
EXTRAS = ("postgres", "traces", "web", "yaml")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEMS = ("linux", "darwin")


def pins() -> dict[str, str]:
    """Return the version of each package that `constraints.txt` names."""
    lines = (ROOT / "constraints.txt").read_text().split()
    return {canonicalize_name(name): wanted for name, _, wanted in (line.partition("==") for line in lines)}


def closure() -> dict[str, list[str]]:
    """Return each package that Holdfast needs, itself too, with the packages that it needs."""
    found: dict[str, list[str]] = {}
    waiting = [(PRODUCT, frozenset(EXTRAS))]
    asked = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        needed = list(_needed(name, extras))
        found[name] = sorted({*found.get(name, ()), *(other for other, _ in needed)} - {name})
        fresh = [each for each in needed if each not in asked]
        asked.update(fresh)
        waiting += fresh
    return dict(sorted(found.items()))


def direct() -> set[str]:
    """Return the packages that Holdfast needs without extras."""
    return {name for name, _ in _needed(PRODUCT, frozenset())}


def versions(names: list[str]) -> dict[str, str]:
    """Return the version of each package; the program ends if one is not the pinned one."""
    wanted = pins() | {PRODUCT: version(PRODUCT)}
    wrong = [f"{name} {wanted.get(name, 'without a pin')}" for name in names if _installed(name) != wanted.get(name)]
    if wrong:
        sys.exit(f"The environment is not as constraints.txt says: it lacks {', '.join(wrong)}. Run `make clean`.")
    return {name: wanted[name] for name in names}


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _needed(name: str, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for text in requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in _environments(extras)):
            yield canonicalize_name(requirement.name), frozenset(map(canonicalize_name, requirement.extras))


def _environments(extras: frozenset[str]) -> Iterator[dict[str, str]]:
    """What a marker is evaluated with."""
    for python in PYTHONS:
        for system in SYSTEMS:
            names = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": system}
            names |= {"platform_system": system.capitalize(), "os_name": "posix", "implementation_name": "cpython"}
            yield from ({**names, "extra": extra} for extra in sorted(extras | {""}))


def hashed() -> dict[str, str]:
    """Return the version of each package that `constraints-hashes.txt` names."""
    text = (ROOT / "constraints-hashes.txt").read_text()
    return {canonicalize_name(name): wanted for name, wanted in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)}
