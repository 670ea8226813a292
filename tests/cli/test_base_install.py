"""Without the extras everything works but what they are for: `pip install .` alone."""

import json
import subprocess
import sys

import pytest

EXTRAS = (
    "anyio",
    "igraph",
    "jinja2",
    "litestar",
    "markupsafe",
    "opentelemetry",
    "prometheus_client",
    "psycopg",
    "psycopg_pool",
    "uvicorn",
    "yaml",
)
WITHOUT = """
import contextlib, io, json, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {extras}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
sys.path.insert(0, "")
import shop
from holdfast.cli import main

answers = []
for command in json.loads(sys.argv[1]):
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main(command)
    except SystemExit as end:
        answers.append((end.code, said.getvalue()))
print(json.dumps(answers))
"""
SHOP = """
from holdfast import App

app = App("sqlite:///shop.db", name="shop")

@app.queue("mail").job
def send(to: str) -> str:
    return to

report = app.workflow("report")

@report.step()
def prepare(task): ...

app.run_until_idle()
"""
WORKING = (
    'jobs enqueue mail send {"to":"a"}',
    "jobs list",
    "jobs show 1",
    "jobs explain 1",
    "jobs complete 1",
    "jobs abort 1",
    "jobs tail 1",
    "jobs retry 1",
    "queues list",
    "queues pause mail",
    "queues resume mail",
    "queues limit mail 3",
    "workflows list",
    "workflows submit report monday",
    "workflows show report monday",
    "workflows hold pick",
    "workflows release pick",
    "workflows abort report monday",
    "workflows archive report monday",
    "workflows delete report monday",
    "builds list",
    "schedules list",
    "routines list",
    "workers list",
    "tokens create --scope admin",
    "tokens list",
    "top --json",
    "archive",
    "migrate",
    "version",
)
SERVING = ("serve", "dev", "demo")
POSTGRES = "jobs list --url postgresql://nowhere/shop"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """The exit code and words of each command, in one process that has no extra."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    commands = [f"{command} --url sqlite:///shop.db" for command in WORKING] + [*SERVING, POSTGRES]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(extras=set(EXTRAS)), json.dumps([each.split() for each in commands])],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip([*WORKING, *SERVING, POSTGRES], json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("command", WORKING)
def test_what_serves_nothing_works_without_the_extras(answers: dict[str, tuple[int, str]], command: str) -> None:
    exit_code, said = answers[command]
    assert exit_code == 0, said


@pytest.mark.parametrize("command", SERVING)
def test_what_serves_says_which_extra_it_needs(answers: dict[str, tuple[int, str]], command: str) -> None:
    exit_code, said = answers[command]
    assert exit_code == 2, said
    assert "The extra `web` brings it: pip install '.[web]' in a clone" in said


def test_postgresql_says_which_extra_it_needs(answers: dict[str, tuple[int, str]]) -> None:
    exit_code, said = answers[POSTGRES]
    assert exit_code == 2, said
    assert "The extra `postgres` brings it: pip install '.[postgres]' in a clone" in said
