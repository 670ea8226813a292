"""F1: workflows from JSON, TOML and YAML files; the examples are read, and one of them runs."""

import builtins
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Failed, Invalid, NotFound
from holdfast.workflow_files import read_definition
from holdfast.workflows.partition import Items, Packs, Shards
from holdfast.workflows.states import WorkflowState

pytestmark = pytest.mark.claim("F1")

Make = Callable[..., App]
EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "workflows"


LAUGHS = "a: &a [1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("file", sorted(EXAMPLES.iterdir()), ids=lambda file: file.name)
def test_every_example_is_right(file: Path) -> None:
    assert read_definition(file).name == file.stem


def test_the_same_workflow_reads_alike_in_every_form(tmp_path: Path) -> None:
    texts = {
        "report.json": '\ufeff{"name": "report", "steps": [{"name": "a", "shards": 4}, {"name": "b", "after": ["a"], "timeout": null}]}',
        "report.toml": 'name = "report"\n[steps.a]\nshards = 4\n[steps.b]\nafter = ["a"]\ntimeout = "none"\n',
        "report.yaml": "name: report\nsteps:\n- name: a\n  shards: 4\n- name: b\n  after: [a]\n  timeout: null\n",
        "report.YML": "name: report\nsteps: {a: {shards: 4}, b: {after: a, timeout: none}}\n",
    }
    read = [read_definition(written(tmp_path, name, text)) for name, text in texts.items()]
    assert read == [read[0]] * 4
    assert read[0].steps[0].partition == Shards(4)
    assert read[0].steps[1].timeout is None


def test_the_example_in_tascreeds_form_means_what_it_meant_there() -> None:
    found = read_definition(EXAMPLES / "sales-report.json")
    assert (found.priority, found.duration, found.version) == (90, 900, "3")
    assert [each.name for each in found.steps if each.can_fail] == ["charts"]
    assert [each.name for each in found.steps if each.can_ignore] == ["mail"]
    assert found.step("calc").partition == Packs(0, 925, 100)
    assert found.step("cleanup").phase == 1
    assert read_definition(EXAMPLES / "clickstream.json").step("consume").partition == Packs(0, None, 1000)


def test_yaml_has_no_traps_and_knows_anchors() -> None:
    found = read_definition(EXAMPLES / "newsletter.yaml")
    assert found.params == {"issue": "2026-11-15", "country": "no"}
    assert found.step("send").partition == Items()
    assert found.step("remind").params == {"subject": "Did you see it?", "track": False}


def test_a_date_of_toml_is_a_text_in_params(tmp_path: Path) -> None:
    file = written(tmp_path, "report.toml", 'name = "report"\nparams = { day = 2026-11-15 }\n[steps.a]\n')
    assert read_definition(file).params == {"day": "2026-11-15"}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "x.json",
            '{"name": "x", "name": "y", "steps": [{"name": "a", "effort": 1, "effort": -1}]}',
            ["the key `name` stands twice in the table of `x`", "the key `effort` stands twice in the table of `a`"],
        ),
        (
            "x.json",
            '{"name": "x", "steps": [{"name": "a", "name": "b", "shrads": 4}]}',
            ["the key `name` stands twice in the table of `a`", r"steps\[0\]\.shrads: is not a known key"],
        ),
        (
            "x.yaml",
            "name: x\nsteps:\n- name: a\n  effort: 1\n  effort: -1\n",
            ["line 5: the key `effort` stands twice", r"steps\[0\]\.effort: is -1"],
        ),
        ("x.toml", 'name = "x"\nname = "y"\n', ["x.toml is not TOML that can be read: Cannot overwrite a value"]),
    ],
)
def test_a_key_that_stands_twice_is_refused(tmp_path: Path, name: str, text: str, told: list[str]) -> None:
    for each in told:
        with pytest.raises(Invalid, match=each):
            read_definition(written(tmp_path, name, text))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("x.json", '{"name": "x",}', "is not JSON that can be read: Expecting property name .* line 1 column 14"),
        ("x.json", '{"name": "x", "priority": NaN}', "NaN is not a number that JSON has"),
        ("x.json", "[" * 100_000, "is not JSON that can be read"),
        ("x.json", "", "is not JSON that can be read"),
        ("x.toml", "name = ", "is not TOML that can be read"),
        ("x.yaml", "name: [x", "is not YAML that can be read: while parsing a flow sequence .* line 1, column 7"),
        ("x.yaml", "", r"it is None; give a table with a name and steps"),
        ("x.yaml", "name: x\n---\nname: y\n", "expected a single document"),
        ("x.yaml", "name: !!python/object/apply:os.system [ls]\n", "could not determine a constructor for the tag"),
        ("x.yaml", "name: x\nparams: {d: !!timestamp 2026-11-15}\n", "could not determine a constructor for the tag"),
        ("x.yaml", "params: &a {b: *a}\n", "aliases unfold to more than 100000 values"),
        ("x.yaml", LAUGHS, "aliases unfold to more than 100000 values"),
        ("x.yaml", "? {a: b}\n: c\n", "found unhashable key"),
        ("x.yaml", "[" * 100_000, "is not YAML that can be read"),
        ("x.ini", "name = x", r"x\.ini: a workflow is read from \.json, \.toml, \.yaml, \.yml; give the file one of these"),
    ],
    ids=range(15),
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path, name: str, text: str, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        read_definition(written(tmp_path, name, text))


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"There is no file .*nowhere\.json; correct the path\."):
        read_definition(tmp_path / "nowhere.json")


def test_a_folder_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for name in ("folder.json", "bytes.json"):
        with pytest.raises(Invalid, match=f"{name} cannot be read: "):
            read_definition(str(tmp_path / name))


def test_without_pyyaml_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "yaml" or name.startswith(("yaml.", "holdfast.strict_yaml"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("holdfast.strict_yaml", raising=False)
    real = builtins.__import__

    def without_yaml(name: str, *rest: Any) -> Any:
        if name == "yaml":
            raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_yaml)
    with pytest.raises(Invalid, match=r"extra `yaml` brings it: pip install '\.\[yaml\]' in a clone"):
        read_definition(written(tmp_path, "x.yaml", "name: x\n"))


def test_a_definition_of_tascreed_runs_with_functions_given_by_name(app: Make) -> None:
    shop, seen = app(), list[str]()

    def note(task: Any) -> None:
        seen.append(task.name)
        if task.step == "charts":
            raise Failed("nothing to draw")

    handlers = dict.fromkeys(("com.example.sales.PrepareExecutor", "load", "calc", "charts", "mail", "cleanup"), note)
    report = shop.load_workflow(EXAMPLES / "sales-report.json", handlers)
    run = report.submit("2026-11-15", ignore=["mail"])
    shop.run_until_idle()
    run = run.refresh()
    assert run.state is WorkflowState.SUCCESS
    assert {name: str(found.state) for name, found in run.steps.items()} == {
        "prep": "SUCCESS",
        "load": "SUCCESS",
        "calc": "SUCCESS",
        "charts": "ACCEPTABLE_FAILED",
        "mail": "IGNORED",
        "cleanup": "SUCCESS",
    }
    assert seen == [
        "prep",
        *(f"load.shard-{index}" for index in range(4)),
        *(f"calc.pack-{index}" for index in range(10)),
        "charts",
        "cleanup",
    ]


@pytest.mark.claim("F12")
def test_items_of_a_workflow_in_a_file_are_made_by_a_function_given_by_name(app: Make) -> None:
    shop, sent = app(), list[str]()
    handlers: dict[str, Any] = {
        "render": lambda task: None,
        "send": lambda task: sent.append(task.item),
        "remind": lambda task: None,
        "count": lambda task: None,
    }
    with pytest.raises(Invalid, match=r"no function for `send\.items`"):
        shop.load_workflow(EXAMPLES / "newsletter.yaml", handlers)
    news = shop.load_workflow(EXAMPLES / "newsletter.yaml", {**handlers, "send.items": lambda task: ["ada", "ben"]})
    run = news.submit("1")
    shop.run_until_idle()
    assert run.refresh().state is WorkflowState.SUCCESS
    assert sorted(sent) == ["ada", "ben"]
