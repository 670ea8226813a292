"""A list of everything that Holdfast runs with, as CycloneDX JSON: `python -m release.bill_of_materials [FILE]`.

- It is the same for the same commit and the same `constraints.txt`: its time is that of the commit, and it has no random number.
- A package that only an extra needs is `optional`.
"""

import json
import sys
from datetime import UTC, datetime
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from release import commit, dependencies

LICENSE = "License :: OSI Approved :: "


def bill() -> dict[str, Any]:
    needed = dependencies.closure()
    versions = dependencies.versions(list(needed))
    always = _reached(needed, dependencies.direct())
    names = [name for name in needed if name != dependencies.PRODUCT]
    scopes = {name: "required" if name in always else "optional" for name in names}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(commit.moment(), UTC).isoformat(),
            "component": _component(dependencies.PRODUCT, versions, {}),
        },
        "components": [_component(name, versions, {"scope": scopes[name]}) for name in names],
        "dependencies": [
            {"ref": _address(name, versions), "dependsOn": [_address(other, versions) for other in others]}
            for name, others in needed.items()
        ],
    }


def _reached(needed: dict[str, list[str]], names: set[str]) -> set[str]:
    found: set[str] = set()
    while names:
        found |= names
        names = {other for name in names for other in needed[name]} - found
    return found


def _component(name: str, versions: dict[str, str], more: dict[str, Any]) -> dict[str, Any]:
    address = _address(name, versions)
    known = {"type": "library", "bom-ref": address, "name": name, "version": versions[name], "purl": address}
    return {**known, **more, "licenses": _licenses(name)}


def _address(name: str, versions: dict[str, str]) -> str:
    return f"pkg:pypi/{name}@{versions[name]}"


def _licenses(name: str) -> list[dict[str, Any]]:
    """What a package says of its licence: an expression, or else names."""
    said = metadata(name)
    if expression := said.get_all("License-Expression"):
        return [{"expression": expression[0]}]
    names = [each.removeprefix(LICENSE) for each in said.get_all("Classifier") or () if each.startswith(LICENSE)]
    if not names and (text := said.get_all("License")):
        names = [text[0].strip().splitlines()[0]]  # some packages put the whole text there
    return [{"license": {"name": each}} for each in sorted(names)]


def main() -> None:
    text = json.dumps(bill(), indent=2, ensure_ascii=False) + "\n"
    if sys.argv[1:]:
        file = Path(sys.argv[1])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        print(f"{file}: {len(bill()['components'])} packages")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
