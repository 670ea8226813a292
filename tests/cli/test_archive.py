"""`holdfast archive`: moving, exporting and letting go of finished jobs."""

import json
import sys
from datetime import datetime
from pathlib import Path

import pytest

from holdfast import App, views
from holdfast.cli import exporting
from holdfast.stores.contract import ArchivePage
from tests.cli import terminal
from tests.cli.conftest import Call

pytestmark = pytest.mark.claim("E4")


@pytest.fixture
def ended(shop: App) -> list[int]:
    """Four jobs of the shop that ended just now: two sent, one broken, one failed."""
    jobs = [shop.enqueue("mail", name, payload) for name, payload in
            (("send", {"to": "ann"}), ("break_", {}), ("fail", {}), ("send", {"to": "bob", "subject": "ü\n"}))]  # fmt: skip
    shop.run_until_idle()
    return [job.id for job in jobs]


def test_what_is_old_moves_now_without_a_worker(cli: Call, shop: App, url: str, ended: list[int]) -> None:
    living = shop.enqueue("mail", "send", {"to": "cyd"})
    nothing = {"moved": 0, "forgotten": 0, "runs_moved": 0, "runs_forgotten": 0}
    assert cli("archive", "--url", url, "--json").json == nothing  # not a week old
    assert cli("archive", "--url", url, "--older-than", "1h").out == "Jobs moved to the archive: 0.\n"
    assert cli("archive", "--url", url, "--older-than", "0", "--json").json == {**nothing, "moved": 4}

    assert [job.id for job in shop.find()] == [living.id]
    assert [job.id for job in shop.find(archive=True)] == [living.id, *reversed(ended)]
    assert shop.get(ended[0]).archived
    assert [move.to_state.value for move in shop.history(ended[0])] == ["initial", "running", "final"]
    assert [attempt.outcome for attempt in shop.attempts(ended[1])] == ["error"]


def test_the_settings_say_what_is_old_where_no_flag_does(
    cli: Call, shop: App, url: str, ended: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holdfast.toml").write_text("archive_after = 0.000001\n")
    assert cli("archive", "--url", url, "--json").json["moved"] == 4
    monkeypatch.setenv("HOLDFAST_ARCHIVE_KEEP", "0.000001")
    answer = cli("archive", "--url", url, "--json").json
    assert answer["forgotten"] == (4 if url.startswith("sqlite") else 0)  # the month is not over


def test_a_whole_lot_after_the_other_moves(cli: Call, shop: App, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        shop.enqueue("mail", "fail")
    shop.run_until_idle()
    lots: list[int] = []
    real = type(shop.store).archive

    def small(store: object, older_than: float) -> int:
        lots.append(real(store, older_than, 2))  # type: ignore[arg-type]
        return lots[-1]

    monkeypatch.setattr(type(shop.store), "archive", small)
    assert cli("archive", "--url", url, "--older-than", "0", "--json").json["moved"] == 5
    assert lots[-1] == 0
    assert len(lots) > 2


def test_the_archive_is_exported_as_json_lines(
    cli: Call, shop: App, url: str, ended: list[int], tmp_path: Path
) -> None:
    cli("archive", "--url", url, "--older-than", "0")
    file = tmp_path / "jobs.jsonl"
    assert cli("archive", "--url", url, "--export", file).out == f"Jobs written to {file}: 4.\n"

    lines = [json.loads(line) for line in file.read_text().splitlines()]

    assert lines == [views.job(shop.get(job_id)) for job_id in ended]
    assert [line["outcome"] for line in lines] == ["success", "error", "failed", "success"]
    assert not list(tmp_path.glob("*.partial"))
    told = cli("archive", "--url", url, "--export", file, "--json").json
    assert told == {"exported": 4, "file": str(file)}


def test_standard_output_has_the_lines_and_nothing_else(shop: App, url: str, ended: list[int], tmp_path: Path) -> None:
    shop.store.archive(-1)
    answer = terminal.run(tmp_path, "archive", "--url", url, "--export", "-", "--attempts")
    assert (answer.code, answer.err) == (0, "")
    lines = [json.loads(line) for line in answer.out.splitlines()]
    assert [line["id"] for line in lines] == ended
    assert [[each["outcome"] for each in line["attempts"]] for line in lines] == [
        ["success"],
        ["error"],
        ["failed"],
        ["success"],
    ]
    assert "ValueError: broken" in lines[1]["attempts"][0]["traceback"]


def test_what_is_exported_can_be_chosen(cli: Call, shop: App, url: str, ended: list[int], tmp_path: Path) -> None:
    @shop.queue("post").job
    def scan() -> None: ...

    scan.enqueue()
    shop.run_until_idle()
    shop.store.archive(-1)
    ends = [shop.get(job_id).end_time for job_id in ended]

    def exported(*filters: object) -> list[str]:
        file = tmp_path / "jobs.jsonl"
        assert cli("archive", "--url", url, "--export", file, *filters).code == 0
        return [json.loads(line)["job_type"] for line in file.read_text().splitlines()]

    assert exported("--job-type", "send") == ["send", "send"]
    assert exported("--queue", "post") == ["scan"]
    assert exported("--since", ends[2].isoformat()) == ["fail", "send", "scan"]  # type: ignore[union-attr]
    assert exported("--until", ends[2].isoformat()) == ["send", "break_"]  # type: ignore[union-attr]
    assert exported("--queue", "post", "--job-type", "send") == []


def test_an_export_reads_page_by_page(shop: App, ended: list[int]) -> None:
    shop.store.archive(-1)
    pages = list(exporting.shapes_of(shop.store, ArchivePage(limit=3), attempts=False))
    assert [[shape["id"] for shape in page] for page in pages] == [ended[:3], ended[3:]]


def test_an_export_that_breaks_off_leaves_what_was_there(
    cli: Call, shop: App, url: str, ended: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.store.archive(-1)
    file = tmp_path / "jobs.jsonl"
    file.write_text("of yesterday")

    def full(self: object, shapes: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting.Lines, "write", full)
    answer = cli("archive", "--url", url, "--export", file)

    assert (answer.code, answer.out) == (1, "")
    assert "could not be written: No space left on device" in answer.err
    assert file.read_text() == "of yesterday"
    assert not list(tmp_path.glob("*.partial"))


def test_parquet_without_pyarrow_is_refused_with_the_cure(
    cli: Call, shop: App, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = cli("archive", "--url", url, "--export", tmp_path / "jobs.parquet")
    assert (answer.code, answer.out) == (2, "")
    assert "Parquet needs pyarrow" in answer.err
    assert "pip install pyarrow" in answer.err
    assert not list(tmp_path.glob("jobs.parquet*"))


def test_parquet_has_a_column_for_each_name(cli: Call, shop: App, url: str, ended: list[int], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    shop.store.archive(-1)
    file = tmp_path / "jobs.parquet"
    assert cli("archive", "--url", url, "--export", file, "--attempts", "--json").json["exported"] == 4

    rows = parquet.read_table(file).to_pylist()

    assert list(rows[0]) == [*views.JOB, "attempts"]
    for row, job in zip(rows, map(shop.get, ended), strict=True):
        assert (row["id"], row["outcome"], row["end_time"]) == (job.id, job.outcome, job.end_time)
        assert json.loads(row["payload"]) == job.payload
        assert isinstance(row["create_time"], datetime)
        assert [each["attempt"] for each in json.loads(row["attempts"])] == [1]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--older-than", "soon"], "--older-than is 'soon'; write seconds"),
        (["--older-than", "99999999999d"], "--older-than is '99999999999d'; give at most a thousand years"),
        (["--keep", "9" * 400], "give at most a thousand years"),
        (["--older-than", "7d", "--keep", "1d"], "both count from a job's end"),
        (["--job-type", "send"], "--job-type says what to export"),
        (["--attempts"], "--attempts says what to export"),
        (["--export", "-", "--keep", "1d"], "exporting neither moves nor removes"),
        (["--export", "-", "--since", "yesterday"], "--since is 'yesterday'"),
        (["--export", "-", "--until", "2026-01-01T00:00"], "without a time zone"),
        (["--export", "nowhere/jobs.jsonl"], "nowhere/jobs.jsonl cannot be written"),
    ],
)
def test_what_makes_no_sense_is_exit_code_two(cli: Call, shop: App, url: str, flags: list[str], said: str) -> None:
    answer = cli("archive", "--url", url, *flags)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


class TestRuns:
    @pytest.fixture
    def runs(self, shop: App) -> list[int]:
        """Two runs of a workflow and one of another, all done."""
        found = []
        for name in ("report", "cleanup"):
            shop.workflow(name).step(name="work", shards=2)(lambda task: task.index)
        for name, trigger in (("report", "monday"), ("cleanup", "monday"), ("report", "tuesday")):
            found.append(shop.workflows[name].submit(trigger, {"day": trigger}).id)
        shop.run_until_idle()
        return found

    @pytest.mark.claim("F18")
    def test_runs_move_with_their_jobs(self, cli: Call, shop: App, url: str, runs: list[int]) -> None:
        said = cli("archive", "--url", url, "--older-than", "0").out
        assert said == "Jobs moved to the archive: 6. Runs: 3.\n"
        assert cli("workflows", "list", "--url", url, "--json").json == []
        listed = cli("workflows", "list", "--url", url, "--archive", "--json").json
        assert [(run["id"], run["archived"]) for run in listed] == [(run, True) for run in reversed(runs)]
        assert cli("workflows", "show", "report", "monday", "--url", url, "--json").json == listed[2]
        assert "SUCCESS (archived)" in cli("workflows", "show", "report", "monday", "--url", url).out
        tasks = cli("workflows", "tasks", "report", "monday", "work", "--url", url, "--json").json
        assert [(task["name"], task["state"], task["job"]["archived"]) for task in tasks] == [
            ("work.shard-0", "SUCCESS", True),
            ("work.shard-1", "SUCCESS", True),
        ]
        assert "work.shard-1" in cli("workflows", "tasks", "report", "monday", "work", "--url", url).out
        assert cli("workflows", "tasks", "report", "monday", "wrok", "--url", url).code == 3

    @pytest.mark.claim("F18")
    def test_one_run_is_archived_by_hand(self, cli: Call, shop: App, url: str, runs: list[int]) -> None:
        said = cli("workflows", "archive", "report", "monday", "--url", url).out
        assert said == "Run `monday` of workflow `report` is in the archive.\n"
        assert cli("workflows", "archive", "report", "monday", "--url", url).code == 4

    @pytest.mark.claim("F18")
    @pytest.mark.parametrize("format", ["jsonl", "parquet"])
    def test_archived_runs_are_exported_with_their_steps(
        self, cli: Call, shop: App, url: str, runs: list[int], tmp_path: Path, format: str
    ) -> None:
        if format == "parquet":
            pytest.importorskip("pyarrow.parquet")
        cli("archive", "--url", url, "--older-than", "0")
        file = tmp_path / f"runs.{format}"
        told = cli("archive", "--url", url, "--export", file, "--runs", "--workflow", "report").out
        assert told == f"Runs written to {file}: 2.\n"
        if format == "jsonl":
            lines = [json.loads(line) for line in file.read_text().splitlines()]
        else:
            lines = pytest.importorskip("pyarrow.parquet").read_table(file).to_pylist()
            lines = [{**line, **{name: json.loads(line[name]) for name in ("params", "steps")}} for line in lines]
        assert [(line["trigger"], line["state"], line["progress"]) for line in lines] == [
            ("monday", "SUCCESS", 1.0),
            ("tuesday", "SUCCESS", 1.0),
        ]
        assert lines[0]["params"] == {"day": "monday"}
        assert lines[0]["steps"]["work"]["succeeded"] == 2

    @pytest.mark.claim("F18")
    @pytest.mark.parametrize(
        "flags", [("--runs",), ("--export", "-", "--workflow", "w"), ("--export", "-", "--runs", "--queue", "q")]
    )
    def test_flags_that_do_not_fit_are_refused(self, cli: Call, shop: App, url: str, flags: tuple[str, ...]) -> None:
        assert cli("archive", "--url", url, *flags).code == 2
