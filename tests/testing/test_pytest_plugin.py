"""The plugin of pytest, which every run of pytest imports in an environment that has Holdfast."""

import pytest

pytest_plugins = ["pytester"]
OTHERS = [f"-pno:{name}" for name in ("cacheprovider", "faker", "hypothesispytest", "schemathesis", "xdist")]
LIST_MODULES = """
    import sys

    def pytest_unconfigure():
        print("modules:", *sorted(sys.modules))
"""


def modules(pytester: pytest.Pytester, *options: str) -> set[str]:
    """What a run of one test imports."""
    lines = pytester.runpytest_subprocess(*OTHERS, *options).stdout.lines
    assert "1 passed" in "".join(lines)
    return set(next(line for line in lines if line.startswith("modules:")).split()[1:])


def test_a_run_without_the_fixture_imports_the_plugin_alone(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LIST_MODULES)
    pytester.makepyfile("def test_it(): pass")

    assert modules(pytester) - modules(pytester, "-pno:holdfast") == {"_holdfast_pytest"}


def test_a_test_with_the_fixture_has_holdfast(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LIST_MODULES)
    pytester.makepyfile("def test_it(rehearse): rehearse().assert_not_enqueued()")

    assert "holdfast.worker" in modules(pytester)
