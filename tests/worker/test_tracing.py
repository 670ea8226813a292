"""Spans from enqueue to end, in a program of its own: OpenTelemetry is global to a process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import PATIENCE, environment

PROGRAM = """
import json, sys
{imports}
from holdfast import App, Failed, Snooze

app = App({url!r}, name={instance!r})
queue = app.queue("mail")

@queue.job(retries=0, secrets=("password",))
def log_in(password: str) -> None:
    raise RuntimeError(f"wrong: {{password}}")

@queue.job()
async def send(to: str) -> None: ...

@queue.job(isolation="thread")
def rest() -> None: ...

{body}
"""
TRACED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(spans))
"""
BODY = """
with trace.get_tracer("shop").start_as_current_span("order"):
    send.enqueue(to="a")
    app.enqueue_many([log_in.new(password="correct horse"), rest.new()])
app.run_until_idle()
print(json.dumps([json.loads(span.to_json()) for span in spans.get_finished_spans()]))
"""
UNTRACED = """
send.enqueue(to="a")
app.run_until_idle()
print(json.dumps({"loaded": [name for name in sys.modules if name.startswith("opentelemetry")]}))
"""


def play(folder: Path, **parts: str) -> Any:
    file = folder / "program.py"
    file.write_text(PROGRAM.format(**parts))
    done = subprocess.run(
        [sys.executable, str(file)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_attempt_is_a_span_below_its_enqueue(url: str, instance: str, tmp_path: Path) -> None:
    spans = play(tmp_path, imports=TRACED, url=url, instance=instance, body=BODY)
    by_name = {span["name"]: span for span in spans}
    assert set(by_name) == {"order", "enqueue send", "enqueue", "send", "log_in", "rest"}
    assert len({span["context"]["trace_id"] for span in spans}) == 1
    for child, parent in (
        ("enqueue send", "order"),
        ("send", "enqueue send"),
        ("log_in", "enqueue"),
        ("rest", "enqueue"),
    ):
        assert by_name[child]["parent_id"] == by_name[parent]["context"]["span_id"], child
    assert by_name["send"]["kind"] == "SpanKind.CONSUMER"
    assert by_name["send"]["attributes"]["holdfast.job.attempt"] == 1
    failed = by_name["log_in"]
    assert failed["status"] == {"status_code": "ERROR", "description": "wrong: [secret]"}
    assert "correct horse" not in json.dumps(spans)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_program_that_does_not_trace_loads_nothing(url: str, instance: str, tmp_path: Path) -> None:
    assert play(tmp_path, imports="", url=url, instance=instance, body=UNTRACED) == {"loaded": []}
