"""What Holdfast runs with: pinned, with the hashes of all files, and listed; `make hashes` and `make sbom` write it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from release import bill_of_materials, dependencies
from release.dependencies import ROOT

HASHES = ROOT / "constraints-hashes.txt"


def test_the_hashes_are_of_all_that_holdfast_needs_and_of_nothing_else() -> None:
    needed, pins = set(dependencies.closure()) - {"holdfast"}, dependencies.pins()
    assert dependencies.hashed() == {name: pins[name] for name in needed}, "run `make hashes`"


def test_every_package_has_hashes_and_no_line_has_an_address() -> None:
    blocks = re.split(r"^(?=\w)", HASHES.read_text(), flags=re.MULTILINE)[1:]
    assert len(blocks) > 30
    for block in blocks:
        first, *hashes = block.replace("\\\n", "").split()
        assert hashes, first
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), first


def test_the_bill_of_materials_lists_each_package_once_and_whom_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1764000000")
    bill = bill_of_materials.bill()
    assert bill == bill_of_materials.bill()

    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["timestamp"] == "2025-11-24T16:00:00+00:00"
    assert bill["metadata"]["component"]["licenses"] == [{"expression": "Apache-2.0"}]
    listed = {each["name"]: each for each in bill["components"]}
    assert {name: each["version"] for name, each in listed.items()} == dependencies.hashed()
    assert listed["msgspec"]["scope"] == "required"
    assert listed["psycopg"]["scope"] == "optional"
    assert all(each["licenses"] for each in listed.values())
    graph = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    references = {each["bom-ref"] for each in (*bill["components"], bill["metadata"]["component"])}
    assert set(graph) == references
    assert {other for others in graph.values() for other in others} <= references
    assert json.loads(json.dumps(bill)) == bill


def test_an_old_setuptools_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "setuptools.py").write_text("__version__ = '65.5.0'")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, ROOT / "setup.py"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "setuptools 77 or later, and this is 65.5.0" in done.stderr
    assert "pip install --upgrade 'setuptools>=77'" in done.stderr
