"""Orders: what is asked for is checked before anything is touched."""

from typing import Any

import pytest

from holdfast.builds import order
from holdfast.builds.order import BuildOrder
from holdfast.errors import Invalid

COMMIT = "a" * 40
DASHES = ("git@-oProxyCommand=x:y", "ssh://-oProxyCommand=x/y", "ssh://git@-oProxyCommand=x/y", "ssh://-x@y/z")


def made(**more: Any) -> BuildOrder:
    told = {"project": "demo", "commit": COMMIT, "repository": "file:///srv/demo.git"}
    return BuildOrder(**{**told, **more})


@pytest.mark.parametrize(
    "branch", ["main", "feature/x", "$(touch${IFS}x)", "`x`", "a;b", "a'b", 'a"b', "ünïcode", "a&&b", "a|b", "v1.2"]
)
def test_branches_that_git_allows_are_data_and_allowed(branch: str) -> None:
    assert order.check(made(branch=branch)).branch == branch


@pytest.mark.parametrize(
    "branch",
    [
        *(
            "--upload-pack=x",
            "-x",
            "a\nb",
            "a b",
            "a\0b",
            "a..b",
            "a~b",
            "a^b",
            "a:b",
            "a\\b",
            "a*",
            "a?",
            "a[b",
            "/a",
            "a/",
            "a//b",
        ),
        *("a.lock", ".a", "a/.b", "a.", "@", "a@{b", "", "x" * 251, "a\x1b[31mb", "a\u202eb", "a\rb", "a\tb"),
    ],
)
@pytest.mark.parametrize("what", ["branch", "tag", "ref"])
def test_names_that_git_does_not_allow_or_takes_for_options_are_refused(what: str, branch: str) -> None:
    with pytest.raises(Invalid, match=what):
        order.check(made(**{what: branch}))


@pytest.mark.parametrize("commit", ["HEAD", "main", "a" * 39, "A" * 40, "--help", "a" * 40 + "\n", "a" * 41, ""])
def test_a_commit_is_its_full_name(commit: str) -> None:
    with pytest.raises(Invalid, match="full name"):
        order.check(made(commit=commit))


@pytest.mark.parametrize(
    "repository",
    [
        "https://x.org/a.git",
        "https://ann:pw@x.org/a",
        "ssh://git@x.org/a",
        "git@x.org:a/b.git",
        "file:///srv/a",
        "/srv/a",
    ],
)
def test_addresses_that_are_cloned_from(repository: str) -> None:
    assert order.check(made(repository=repository))


@pytest.mark.parametrize(
    "repository",
    ["ext::sh -c x", "--upload-pack=x", "fd::7", "srv/a", "", "file:///a\nb", "-x@y:z", "javascript://x", *DASHES],
)
def test_other_addresses_are_refused(repository: str) -> None:
    with pytest.raises(Invalid, match="address"):
        order.check(made(repository=repository))


@pytest.mark.parametrize("build_file", ["/etc/passwd", "../x", "a/../../x", "", "a\nb", "-x", "a\\b"])
def test_the_build_file_stays_in_the_repository(build_file: str) -> None:
    with pytest.raises(Invalid, match="build_file"):
        order.check(made(build_file=build_file))


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "GIT_SSH_COMMAND", "A=B", "", "A B", "BASH_ENV"])
@pytest.mark.parametrize("what", ["env", "secrets"])
def test_variables_that_reach_beyond_a_build_are_refused(what: str, name: str) -> None:
    with pytest.raises(Invalid, match="variable"):
        order.check(made(**{what: {name: "x"}}))


def test_everything_that_cannot_be_is_told_at_once() -> None:
    with pytest.raises(Invalid) as refused:
        order.check(made(project="a b", commit="x", event="Push!", env={"A": "a\0"}, path=("bin",)))
    for what in ("project", "commit", "event", "NUL", "path 'bin'"):
        assert what in str(refused.value)
