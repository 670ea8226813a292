"""The plugin of pytest: the fixture `rehearse`.

- Every run of pytest imports this file, also where no test uses Holdfast. So it stands outside the package, whose
  import takes a third of a second, and imports Holdfast when a test asks for the fixture.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest


@pytest.fixture
def rehearse() -> Iterator[Callable[..., Any]]:
    """Give your Holdfast app an empty database and a movable clock for this test: `jobs = rehearse(shop.app)`.

    Then `jobs.run_until_idle()`, `jobs.clock.advance(60)`, `jobs.assert_enqueued(shop.send, {"to": "ada"})`.
    Without an app there is a new one, `jobs.app`. With `url=` it is another database than one in memory.
    The answer is a `holdfast.testing.Rehearsal`.
    """
    from holdfast.testing.rehearsal import Rehearsal
    from holdfast.testing.rehearsal import rehearse as rehearsed

    with ExitStack() as stack:

        def begin(*given: Any, **named: Any) -> Rehearsal:
            return stack.enter_context(rehearsed(*given, **named))

        yield begin
