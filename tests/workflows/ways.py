"""Which way the store went, where there is more than one to the same end."""

from typing import Any

import pytest


class Ways(list[str]):
    """A word for each call that was noted."""


def noted(monkeypatch: pytest.MonkeyPatch, *calls: tuple[type, str, str]) -> Ways:
    """Of what is called by its owner and name the word is kept; it goes on as before."""
    found = Ways()
    for owner, name, word in calls:
        was = getattr(owner, name)

        def called(self: Any, *args: Any, was: Any = was, word: str = word) -> Any:
            found.append(word)
            return was(self, *args)

        monkeypatch.setattr(owner, name, called)
    return found
