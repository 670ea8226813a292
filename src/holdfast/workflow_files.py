"""Workflow definitions from files: JSON, TOML and YAML, by the ending of the name (F1).

- A key that stands twice is refused in all of them; in JSON and YAML together with everything else that is wrong.
- YAML needs PyYAML, which the extra `yaml` brings.
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import Invalid, NotFound, reason, shown_path
from holdfast.workflows.definition import Definition
from holdfast.workflows.load import load

Parsed = tuple[Any, list[str]]  # what it says, and what is wrong with how it says it


def read_definition(path: str | Path) -> Definition:
    """The workflow that a file defines; `Invalid` with everything that is wrong, `NotFound` if there is no such file."""
    file = Path(path)
    parse = PARSERS.get(file.suffix.lower())
    if parse is None:
        raise Invalid(
            f"{shown_path(file)}: a workflow is read from {', '.join(PARSERS)}; give the file one of these endings."
        )
    text = _text(file)
    try:
        content, wrong = parse(text)
    except (ValueError, RecursionError) as error:
        problem = str(error) or "it is nested too deeply"
        raise Invalid(
            f"{shown_path(file)} is not {file.suffix[1:].upper()} that can be read: {problem.removesuffix('.')}."
        ) from error
    return load(content, str(file), wrong)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise NotFound(f"There is no file {shown_path(file)}; correct the path.") from None
    except (OSError, ValueError) as error:  # a ValueError: not UTF-8, or a path with NUL
        raise Invalid(f"{shown_path(file)} cannot be read: {reason(error)}.") from error


def _json(text: str) -> Parsed:
    repeated: dict[str, None] = {}

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                repeated[f"the key `{key}` stands twice in {_named(found)}"] = None
            found.setdefault(key, value)
        return found

    return json.loads(text, object_pairs_hook=table, parse_constant=_no_number), list(repeated)


def _named(table: Mapping[str, Any]) -> str:
    """A JSON parser does not say where it is; the name of a workflow or step does."""
    for key in ("jobName", "stepName", "name"):
        if isinstance(table.get(key), str):
            return f"the table of `{table[key]}`"
    return "one table"


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number that JSON has")


def _toml(text: str) -> Parsed:
    return tomllib.loads(text), []


def _yaml(text: str) -> Parsed:
    try:
        from holdfast import strict_yaml
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise Invalid(
            "A workflow in YAML needs PyYAML, which is not installed. The extra `yaml` brings it: "
            "pip install '.[yaml]' in a clone of Holdfast."
        ) from error
    return strict_yaml.parse(text)


PARSERS: Mapping[str, Callable[[str], Parsed]] = {".json": _json, ".toml": _toml, ".yaml": _yaml, ".yml": _yaml}
