"""The command line as a user meets it: a program that is run to its end, or one that goes on until it is told to stop.

Where nothing hangs on the process it is called in this one, which takes a hundredth of the time.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import pytest
from msgspec import Struct

from holdfast.cli import main

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0  # seconds; a loaded machine is slow
T = TypeVar("T")


class Answer(Struct, frozen=True):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it told a program, when all went well."""
        assert (self.code, self.err) == (0, ""), self
        return json.loads(self.out)


Call = Callable[..., Answer]


def called_here(monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """`holdfast …` in a folder without settings."""
    for name in (*filter(lambda name: name.startswith("HOLDFAST_"), os.environ), "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)

    def call(*arguments: object) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Answer(ended.value.code, said.out, said.err)

    return call


def environment(**more: str) -> dict[str, str]:
    """Ours, without what would set Holdfast or the terminal."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    for name in ("FORCE_COLOR", "COLUMNS"):
        kept.pop(name, None)
    return {**kept, "PYTHONPATH": str(ROOT / "src"), **more}


def run(folder: Path, *arguments: str, stdin: str = "", **variables: str) -> Answer:
    """`python -m holdfast …` in a folder, to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        cwd=folder,
        env=environment(**variables),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


class Program:
    """`python -m holdfast …` that goes on; its standard output is a file, or a terminal."""

    def __init__(
        self, folder: Path, *arguments: str, under: Sequence[str] = (), terminal: bool = False, **variables: str
    ) -> None:
        self._out, self._err = folder / "stdout", folder / "stderr"
        command = [*under, sys.executable, "-m", "holdfast", *arguments]
        with self._out.open("wb") as out, self._err.open("w") as err, terminal_before(out, terminal) as output:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment(**variables), stdout=output, stderr=err, preexec_fn=heed_ctrl_c
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def log(self) -> str:
        return self._err.read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ended(self) -> Answer:
        """Waits for its end."""
        code = self.process.wait(PATIENCE)
        return Answer(code, self._out.read_text(), self.log)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)


@contextmanager
def terminal_before(file: IO[bytes], wanted: bool) -> Iterator[IO[bytes] | int]:
    """A terminal whose output is copied to the file; the file itself where none is wanted."""
    if not wanted:
        yield file
        return
    ours, theirs = os.openpty()
    threading.Thread(target=_copy, args=[ours, os.dup(file.fileno())], daemon=True).start()
    try:
        yield theirs
    finally:
        os.close(theirs)


def _copy(terminal: int, file: int) -> None:
    with suppress(OSError):  # its program has ended
        while said := os.read(terminal, 1 << 16):
            os.write(file, said.replace(b"\r\n", b"\n"))
    os.close(terminal)
    os.close(file)


def eventually(look: Callable[[], T]) -> T:
    """The first answer that is true."""
    ends = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < ends, f"still {found!r} after {PATIENCE:g} s"
        time.sleep(0.02)
    return found


def heed_ctrl_c() -> None:
    """In a child: a shell that starts the tests in the background has told them to ignore it, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
