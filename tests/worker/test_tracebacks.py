"""What is told of an error: its traceback is as Python tells it, also where its lines are remembered from before."""

import traceback
from collections.abc import Callable

import pytest

from holdfast.worker.attempt import MOST_REMEMBERED, traceback_of


def caught(function: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as found:
        function()
    error = found.value
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    return error


def raise_at(line: int, text: str = "") -> None:
    if line == 1:
        raise ConnectionError(text)
    if line == 2:
        raise ConnectionError(text)
    raise LookupError(text)


def raise_from(text: str) -> None:
    try:
        raise_at(1, text)
    except ConnectionError as error:
        raise RuntimeError(f"because of {text}") from error


def raise_meanwhile(text: str) -> None:
    try:
        raise_at(1, text)
    except ConnectionError:
        raise_at(3, text)


def raise_noted(text: str) -> None:
    error = ValueError("noted")
    error.add_note(text)
    raise error


def raise_misspelt(text: str) -> None:
    raise_att(1)  # type: ignore[name-defined]  # noqa: F821


def raise_group(text: str) -> None:
    raise ExceptionGroup("several", [ValueError(text), caught(lambda: raise_at(2, text))])  # type: ignore[list-item]


def raise_deep(depth: int, text: str) -> None:
    if depth:
        raise_deep(depth - 1, text)
    raise OSError(text)


@pytest.mark.claim("J9")
@pytest.mark.parametrize(
    "raising",
    [
        lambda text: raise_at(1, text),
        lambda text: raise_at(2, text),
        lambda text: raise_at(3, text),
        raise_from,
        raise_meanwhile,
        raise_noted,
        raise_misspelt,
        raise_group,
        lambda text: raise_deep(5, text),
        lambda text: raise_deep(MOST_REMEMBERED + 5, text),
    ],
)
def test_a_traceback_is_as_python_tells_it_however_often_it_was_told(raising: Callable[[str], None]) -> None:
    for text in ("first", "second", "", "two\nlines"):
        error = caught(lambda text=text: raising(text))  # type: ignore[misc]
        assert traceback_of(error) == "".join(traceback.format_exception(error))


def test_places_in_one_function_are_told_apart() -> None:
    for line in (1, 2, 3, 2, 1):
        error = caught(lambda line=line: raise_at(line))  # type: ignore[misc]
        assert traceback_of(error) == "".join(traceback.format_exception(error))


def test_the_same_code_in_two_files_is_told_by_its_file() -> None:
    text = "def fail():\n    raise ValueError('here')\n"
    told = []
    for file in ("one.py", "other.py"):
        names: dict[str, Callable[[], None]] = {}
        exec(compile(text, file, "exec"), names)
        told.append(traceback_of(caught(names["fail"])))
    assert 'File "one.py"' in told[0]
    assert 'File "other.py"' in told[1]
