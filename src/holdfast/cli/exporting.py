"""Writing the archive to a file: JSON lines, or Parquet where pyarrow is installed.

- It is read page by page, each in a transaction of its own: memory stays the same however long the archive is, and
  nobody waits for it. Jobs that move in or out meanwhile may be in the file or not.
- A file appears under its name when it is whole.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Protocol

import msgspec
from msgspec import Struct, structs

from holdfast import views
from holdfast.errors import HoldfastError, Invalid, shown_path
from holdfast.file_modes import open_file
from holdfast.stores.contract import ArchivePage, RunPage, Store

STANDARD_OUTPUT = "-"
PARQUET = ".parquet"
encode = msgspec.json.Encoder().encode
TIMES = tuple(name for name in views.JOB if name.endswith("_time") and name not in ("execution_time", "total_time"))
WHOLE_NUMBERS = ("id", "attempt", "failures", "losses", "crashes", "retries", "retry_of", "run")
NUMBERS = ("priority", "timeout", "throttle_factor", "execution_time", "total_time", "progress")
FLAGS = ("duplicate", "archived", "aborted")


class Columns(Struct, frozen=True):
    """What a line has; `json` are columns of text, because their shape is the user's."""

    names: tuple[str, ...]
    json: tuple[str, ...]


JOBS = Columns(views.JOB, ("payload", "result", "error", "progress", "answer"))
JOBS_WITH_ATTEMPTS = Columns((*JOBS.names, "attempts"), (*JOBS.json, "attempts"))
RUNS = Columns((*views.RUN, "steps"), ("params", "ignore", "steps"))


class Sink(Protocol):
    """What takes the jobs or runs of a page."""

    def write(self, shapes: Sequence[views.Shape]) -> None: ...

    def close(self) -> None: ...


def export(store: Store, file: str, page: ArchivePage, attempts: bool, count: Callable[[int], None]) -> int:
    """Write what the page says, and what follows it, to the file; how many jobs."""
    return _write(file, JOBS_WITH_ATTEMPTS if attempts else JOBS, shapes_of(store, page, attempts), count)


def export_runs(store: Store, file: str, page: RunPage, count: Callable[[int], None]) -> int:
    """Write the archived runs that the page says, and those that follow, each with its steps; how many."""
    return _write(file, RUNS, shapes_of_runs(store, page), count)


def _write(file: str, columns: Columns, pages: Iterator[list[views.Shape]], count: Callable[[int], None]) -> int:
    written = 0
    with opened(file, columns) as sink:
        for shapes in pages:
            sink.write(shapes)
            written += len(shapes)
            count(written)
    return written


def shapes_of(store: Store, page: ArchivePage, attempts: bool) -> Iterator[list[views.Shape]]:
    """Page by page, oldest id first."""
    while jobs := store.archived(page):
        shapes = [views.job(job) for job in jobs]
        if attempts:
            tried = store.attempts_of(jobs)
            for shape in shapes:
                shape["attempts"] = [views.attempt(each) for each in tried[shape["id"]]]
        yield shapes
        page = structs.replace(page, after=jobs[-1].id)


def shapes_of_runs(store: Store, page: RunPage) -> Iterator[list[views.Shape]]:
    while runs := store.archived_runs(page):
        yield [{name: shape for name, shape in views.run(row).items() if name != "holds"} for row in runs]
        page = structs.replace(page, after=runs[-1].id)


@contextmanager
def opened(file: str, columns: Columns) -> Iterator[Sink]:
    """Where they go. An error or an interruption leaves no file behind, and an older one as it was."""
    if file == STANDARD_OUTPUT:
        yield Lines(sys.stdout.buffer)
        return
    pyarrow = _pyarrow() if file.endswith(PARQUET) else None
    partial = Path(f"{file}.partial")
    try:
        partial.unlink(missing_ok=True)  # of an export that was killed
        stream = os.fdopen(open_file(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")
    except OSError as error:
        raise Invalid(
            f"--export: {shown_path(file)} cannot be written: {error.strerror}. Choose another file."
        ) from error
    try:
        with stream:
            sink: Sink = Lines(stream) if pyarrow is None else Parquet(pyarrow, stream, columns)
            yield sink
            sink.close()
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(file)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError):  # the disk is full, or the name is a folder's
            raise HoldfastError(
                f"{file} could not be written: {error.strerror}. What was there is as it was."
            ) from error
        raise


def _pyarrow() -> ModuleType:
    try:
        found = import_module("pyarrow")
        import_module("pyarrow.parquet")
    except ImportError as error:
        raise Invalid(
            f"Parquet needs pyarrow, which is not installed ({error}). Install it with: pip install pyarrow. "
            "Or export JSON lines: --export jobs.jsonl."
        ) from error
    return found


class Lines:
    """A line of JSON for each."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, shapes: Sequence[views.Shape]) -> None:
        self._stream.write(b"".join(encode(shape) + b"\n" for shape in shapes))
        self._stream.flush()

    def close(self) -> None:
        self._stream.flush()


class Parquet:
    """A column for each name; what is JSON is text in it."""

    def __init__(self, pyarrow: Any, stream: BinaryIO, columns: Columns) -> None:
        self._pyarrow, self._columns = pyarrow, columns
        self._schema = pyarrow.schema([(name, self._type(name)) for name in columns.names])
        self._writer = pyarrow.parquet.ParquetWriter(stream, self._schema, compression="zstd")

    def _type(self, name: str) -> Any:
        if name in self._columns.json:
            return self._pyarrow.string()
        if name in TIMES:
            return self._pyarrow.timestamp("us", tz="UTC")
        if name in WHOLE_NUMBERS:
            return self._pyarrow.int64()
        if name in NUMBERS:
            return self._pyarrow.float64()
        if name in FLAGS:
            return self._pyarrow.bool_()
        return self._pyarrow.list_(self._pyarrow.string()) if name == "time_windows" else self._pyarrow.string()

    def write(self, shapes: Sequence[views.Shape]) -> None:
        columns = [[self._cell(name, shape[name]) for shape in shapes] for name in self._schema.names]
        arrays = [self._pyarrow.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_batch(self._pyarrow.record_batch(arrays, schema=self._schema))

    def _cell(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        if name in self._columns.json:
            return encode(value).decode()
        return datetime.fromisoformat(value) if name in TIMES else value

    def close(self) -> None:
        self._writer.close()
