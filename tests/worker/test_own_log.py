"""What handlers log goes to the worker's own standard error without the secrets of their jobs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import environment

PASSWORD = "correct-horse-battery"
SHOP = """
import logging
from holdfast import App
app = App("sqlite:///jobs.db")
@app.queue("mail").job(secrets=("password",), retries=0, isolation="ISOLATION")
def log_in(password: str) -> None:
    logging.getLogger("shop").warning("with %s", password)
    try:
        raise RuntimeError(password)
    except RuntimeError:
        logging.getLogger("shop").exception("not with %r", password)
app.queue("mail")
"""
ENQUEUE = f"""
from shop import app, log_in
job = log_in.enqueue(password={PASSWORD!r})
"""
BY_CODE = f"{ENQUEUE}with app.worker():\n    job.wait(60)\n"


def run(folder: Path, *arguments: str) -> str:
    """Python's standard error."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(PYTHONPATH=f"{folder}:{Path(__file__).parents[2] / 'src'}"),
        stderr=subprocess.PIPE,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stderr


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_worker_logs_no_secret_where_it_has_set_up_the_log(tmp_path: Path, isolation: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP.replace("ISOLATION", isolation))
    run(tmp_path, "-c", ENQUEUE)
    stop = "import signal, threading, time\nfrom shop import app\n"
    stop += "def end():\n    while not app.find()[0].final: time.sleep(0.05)\n    signal.raise_signal(signal.SIGTERM)\n"
    (tmp_path / "work.py").write_text(
        f"{stop}threading.Thread(target=end, daemon=True).start()\nfrom holdfast.cli import main\nmain(['worker', 'shop:app'])"
    )
    said = run(tmp_path, "work.py")
    assert "WARNING with [secret]" in said
    assert "RuntimeError: [secret]" in said
    assert PASSWORD not in said


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_without_a_log_warnings_go_to_standard_error_without_secrets(tmp_path: Path, isolation: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP.replace("ISOLATION", isolation))
    said = run(tmp_path, "-c", BY_CODE)
    assert "with [secret]\n" in said
    assert "RuntimeError: [secret]" in said
    assert PASSWORD not in said
