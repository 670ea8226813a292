"""Build files."""

import contextlib
import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.builds import buildfile
from holdfast.builds.buildfile import STEP_KEYS, BuildFile, WrongBuildFile, is_output_name
from holdfast.builds.lines import lines
from holdfast.errors import Invalid

pytestmark = pytest.mark.claim("B6")


def read(text: str) -> BuildFile:
    return buildfile.read(text, "b.toml")


def wrong(text: str) -> tuple[str, ...]:
    with pytest.raises(WrongBuildFile) as refused:
        read(text)
    return refused.value.problems


def test_a_file_says_what_runs_after_what() -> None:
    file = read(
        """
        env = { MODE = "ci" }
        [steps.test]
        after = ["compile"]
        run = ["make test", "make report"]
        env = { DEPTH = "2" }
        cwd = "src"
        if = "branch == 'main'"
        outputs = { report = "out/report.html" }
        hidden = true
        [steps.compile]
        run = "make"
        skip = true
        can_fail = true
        """
    )
    compile_, test = file.steps
    assert file.env == {"MODE": "ci"}
    assert (compile_.name, compile_.run, compile_.skip, compile_.can_fail) == ("compile", ("make",), True, True)
    assert (test.name, test.run, test.after) == ("test", ("make test", "make report"), ("compile",))
    assert (test.env, test.cwd, test.outputs) == ({"DEPTH": "2"}, "src", {"report": "out/report.html"})
    assert test.condition is not None
    assert test.condition.text == "branch == 'main'"
    assert file.condition_names == ("branch",)
    assert test.hidden


def test_steps_run_as_they_are_written_but_behind_what_they_come_after() -> None:
    file = read(
        """
        [steps.d]
        after = "b"
        [steps.a]
        [steps.b]
        after = "a"
        [steps.c]
        """
    )
    assert [step.name for step in file.steps] == ["a", "b", "d", "c"]


def test_everything_wrong_is_told_at_once_with_its_line() -> None:
    assert wrong(
        """name = "x"
[env]
"A B" = "1"
N = 3
[steps."bad name"]
run = "x"
[steps.one]
runs = "x"
run = ["ok", 3, ""]
after = ["tow", "one"]
cwd = "/etc"
if = "brunch == 'x'"
hidden = "yes"
outputs = { "../x" = "a", ok = "../../b", _x = "c" }
[steps.two]
env = { LD_PRELOAD = "/x.so" }
run = { a = 1 }
"""
    ) == (
        "b.toml:1: `name` is not a known key. Known are env, steps.",
        "b.toml:3: `env` has 'A B', which is no name of a variable; use letters, digits and _.",
        "b.toml:4: `env.N` is 3; give a text: write numbers in quotes.",
        "b.toml:5: step 'bad name': use letters, digits, `_` and `-`, at most 200.",
        "b.toml:8: `runs` is not a known key. Did you mean `run`?",
        "b.toml:9: `run` holds '' ; give texts that are not empty.".replace(" ;", ";"),
        "b.toml:9: `run` holds 3; give texts that are not empty.",
        "b.toml:10: `tow` is no step of this file. Did you mean `two`?",
        "b.toml:10: one → one is a circle: each comes after the next, so none could ever start.",
        "b.toml:11: cwd is '/etc'; give a path that stays in the working copy.",
        "b.toml:12: `if` asks for `brunch`; known are project, branch, tag, event, commit, trusted, env.NAME, and texts stand "
        "in quotes: \"brunch == 'x'\".",
        "b.toml:13: `hidden` is 'yes'; give true or false.",
        "b.toml:14: `outputs` has '../x', which is no name for an output: begin with a letter or digit, and use letters, digits, "
        "`.`, `_`, `+` and `-`, without `..`.",
        "b.toml:14: `outputs` has '_x', which is no name for an output: begin with a letter or digit, and use letters, digits, "
        "`.`, `_`, `+` and `-`, without `..`.",
        "b.toml:14: output `ok` is '../../b'; give a path that stays in the working copy.",
        "b.toml:16: `env` has 'LD_PRELOAD', which would reach beyond the build's own commands; set it in the line that needs it, "
        "as in `PATH=… make`.",
        "b.toml:17: `run` is {'a': 1}; give a list of texts, or one.",
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "b.toml:1: it has no steps; write one as [steps.NAME] with `run` below it."),
        ("\n\n[steps]\n", "b.toml:3: it has no steps; write one as [steps.NAME] with `run` below it."),
        ("steps = 3", "b.toml:1: it has no steps; write one as [steps.NAME] with `run` below it."),
        ("[steps]\nx = 3", "b.toml:2: step `x` is 3; give a table: [steps.NAME]."),
        ("[steps.x]\nrun = [\n'a'", "b.toml:3: is not TOML: unclosed array."),
        ("[steps.x]\nrun = 1 2\n", "b.toml:2: is not TOML: expected newline or end of document after a statement."),
        ("[steps.x]\n[steps.x]\n", "b.toml:2: is not TOML: cannot declare ('steps', 'x') twice."),
        ("a = " + "[" * 5000 + "]" * 5000, "b.toml: is nested too deeply."),
        ("#" * 300_000, "b.toml: is larger than 256 KiB; put long scripts in files of their own."),
    ],
)
def test_one_thing_wrong_is_the_whole_message(text: str, told: str) -> None:
    with pytest.raises(WrongBuildFile) as refused:
        read(text)
    assert str(refused.value) == told


def test_a_circle_is_told_with_its_way() -> None:
    (told,) = wrong("[steps.a]\nafter = 'c'\n[steps.b]\nafter = 'a'\n[steps.c]\nafter = 'b'\n")
    assert told.startswith("b.toml:2: a → c → b → a is a circle")


@pytest.mark.claim("B7")
def test_two_steps_cannot_have_an_output_of_one_name_whatever_the_case() -> None:
    found = wrong("[steps.a]\noutputs = { report = 'x' }\n[steps.b]\noutputs = { Report = 'y' }\n")
    assert found == ("b.toml:4: output `Report` is also one of step `a`.",)
    assert len(wrong("[steps.a]\noutputs = { x = 'x', X = 'y' }\n")) == 2


@pytest.mark.claim("B7")
@pytest.mark.parametrize("name", ["report", "report.html", "a-b_c+d.tar.gz", "9", "A.b"])
def test_names_of_outputs(name: str) -> None:
    assert is_output_name(name)


@pytest.mark.claim("B7")
@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "a\\b",
            "/x",
            ".hidden",
            "_private",
            "-x",
            "a..b",
            "a\0",
            "a\n",
            "a b",
            "x" * 201,
        ),
        *("%2e%2e", "é", "a:b", "\u202ereport"),
    ],
)
def test_names_that_are_none_for_an_output(name: str) -> None:
    assert not is_output_name(name)


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "LD_X", "DYLD_INSERT_LIBRARIES", "GIT_DIR", "PATH", "BASH_ENV", "HOLDFAST_X"]
)
def test_variables_that_reach_beyond_a_build_are_refused(name: str) -> None:
    (told,) = wrong(f"[env]\n{name} = 'x'\n[steps.a]\n")
    assert told.startswith(f"b.toml:2: `env` has '{name}', which would reach beyond")


def test_one_step_and_what_it_comes_after() -> None:
    file = read("[steps.a]\n[steps.b]\nafter='a'\n[steps.c]\nafter='b'\n[steps.d]\nafter='a'\n")
    assert [step.name for step in buildfile.only(file, "c").steps] == ["a", "b", "c"]
    with pytest.raises(Invalid, match="has no step `e`"):
        buildfile.only(file, "e")


WORDS = st.sampled_from(
    [
        "steps",
        "a",
        "b",
        "run",
        "after",
        "env",
        "outputs",
        "if",
        "x",
        "\n",
        "[",
        "]",
        "=",
        "'",
        '"',
        "{",
        "}",
        ".",
        ",",
        "1",
        "#",
        " ",
    ]
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # how fast texts are made says nothing about the reading
@given(st.lists(WORDS, max_size=40).map("".join))
def test_no_text_breaks_the_reading(text: str) -> None:
    with contextlib.suppress(WrongBuildFile):
        read(text)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    count = text.count("\n") + 1
    assert all(1 <= line <= count for line in lines(text).values())


def test_every_key_of_a_step_is_read() -> None:
    values = {
        "run": "'x'",
        "after": "'b'",
        "env": "{ A = 'x' }",
        "cwd": "'src'",
        "if": "'tag'",
        "outputs": "{ o = 'x' }",
    }
    values |= dict.fromkeys(("hidden", "skip", "can_fail"), "true")
    assert set(values) == set(STEP_KEYS)
    plain = read("[steps.b]\n[steps.a]\n").steps[1]
    for key, value in values.items():
        assert read(f"[steps.b]\n[steps.a]\n{key} = {value}\n").steps[1] != plain, key
