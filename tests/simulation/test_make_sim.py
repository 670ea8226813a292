"""`make sim` plays what it was asked to play, or says why not."""

import pytest

from tests.simulation.__main__ import main


@pytest.mark.parametrize(
    ("name", "value", "cure"),
    [
        ("SEEDS", "abc", "give a whole number, 1 or more"),
        ("SEEDS", "0", "give a whole number, 1 or more"),
        ("SEEDS", "-5", "give a whole number, 1 or more"),
        ("FROM", "x", "give a whole number, 0 or more"),
        ("FROM", "-1", "give a whole number, 0 or more"),
        ("STORE", "oracle", "it may be sqlite or postgres"),
    ],
)
def test_what_cannot_be_played_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, cure: str
) -> None:
    monkeypatch.setenv("SEEDS", "1")
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr()
    assert said.err == f"{name}={value}: {cure}.\n"
    assert said.out == ""
