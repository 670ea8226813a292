"""What the statements in `queries/*.sql` must not take for granted of a database."""

import re
from collections.abc import Iterator

from holdfast.stores import queryfile

NO_NAME = re.compile(r"\)|;|,|$|(where|order|group|limit|on|join|left|cross|union|returning|for|offset)\b")


def test_what_is_selected_from_has_a_name() -> None:
    """PostgreSQL 14 and 15 refuse a subquery in `from` without one, and the tests run on a later release."""
    texts = queryfile.load("holdfast.stores.postgres")
    assert sum(1 for text in texts.values() for _ in selections(text)) > 30
    nameless = [
        name for name, text in texts.items() for _, end in selections(text) if NO_NAME.match(text[end + 1 :].lstrip())
    ]
    assert nameless == []


def selections(text: str) -> Iterator[tuple[int, int]]:
    """Where subqueries in `from` begin, and their last parenthesis."""
    for found in re.finditer(r"\b(?:from|join|lateral)\s*\((?=\s*select\b)", text):
        depth = 0
        for at in range(found.end() - 1, len(text)):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            if depth == 0:
                yield found.start(), at
                break
