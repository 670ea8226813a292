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
from msgspec import structs

from holdfast import views
from holdfast.errors import HoldfastError, Invalid
from holdfast.stores.contract import ArchivePage, Store

STANDARD_OUTPUT = "-"
PARQUET = ".parquet"
encode = msgspec.json.Encoder().encode
TIMES = tuple(name for name in views.JOB if name.endswith("_time") and name not in ("execution_time", "total_time"))
WHOLE_NUMBERS = ("id", "attempt", "failures", "losses", "crashes", "retries", "retry_of")
NUMBERS = ("priority", "timeout", "throttle_factor", "execution_time", "total_time")
FLAGS = ("duplicate", "archived")
JSON = ("payload", "result", "error", "progress", "attempts")  # a column of text, because their shape is the user's


class Sink(Protocol):
    """What takes the jobs of a page."""

    def write(self, shapes: Sequence[views.Shape]) -> None: ...

    def close(self) -> None: ...


def export(store: Store, file: str, page: ArchivePage, attempts: bool, count: Callable[[int], None]) -> int:
    """Write what the page says, and what follows it, to the file; how many jobs."""
    written = 0
    with opened(file, attempts) as sink:
        for shapes in shapes_of(store, page, attempts):
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


@contextmanager
def opened(file: str, attempts: bool) -> Iterator[Sink]:
    """Where the jobs go. An error or an interruption leaves no file behind, and an older one as it was."""
    if file == STANDARD_OUTPUT:
        yield Lines(sys.stdout.buffer)
        return
    pyarrow = _pyarrow() if file.endswith(PARQUET) else None
    partial = Path(f"{file}.partial")
    try:
        stream = partial.open("wb")
    except OSError as error:
        raise Invalid(f"--export: {file} cannot be written: {error.strerror}. Choose another file.") from error
    try:
        with stream:
            sink: Sink = Lines(stream) if pyarrow is None else Parquet(pyarrow, stream, attempts)
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
    """A line of JSON for each job."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, shapes: Sequence[views.Shape]) -> None:
        self._stream.write(b"".join(encode(shape) + b"\n" for shape in shapes))
        self._stream.flush()

    def close(self) -> None:
        self._stream.flush()


class Parquet:
    """A column for each name of a job; what is JSON is text in it."""

    def __init__(self, pyarrow: Any, stream: BinaryIO, attempts: bool) -> None:
        self._pyarrow = pyarrow
        names = (*views.JOB, "attempts") if attempts else views.JOB
        self._schema = pyarrow.schema([(name, self._type(name)) for name in names])
        self._writer = pyarrow.parquet.ParquetWriter(stream, self._schema, compression="zstd")

    def _type(self, name: str) -> Any:
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
        columns = [[_cell(name, shape[name]) for shape in shapes] for name in self._schema.names]
        arrays = [self._pyarrow.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_batch(self._pyarrow.record_batch(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _cell(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in TIMES:
        return datetime.fromisoformat(value)
    return encode(value).decode() if name in JSON else value
