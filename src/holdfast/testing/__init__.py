"""Tests for programs that use Holdfast: a database of their own, a clock that is moved by hand, and crashes on demand.

- `rehearse` gives an app an empty database and a clock for a while; the pytest fixture of that name does it for a test.
- There is no fake: the jobs are stored and run as they always are, by default in memory.
"""

from holdfast.clock import MovableClock
from holdfast.testing.crash import crash_here
from holdfast.testing.rehearsal import Rehearsal, rehearse

__all__ = ["MovableClock", "Rehearsal", "crash_here", "rehearse"]
