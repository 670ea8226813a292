"""The tables of holdfast.toml that say what is built, and what a project makes of what a forge asks for."""

import tomllib
from typing import Any

import pytest

from holdfast import Invalid
from holdfast.builds.forges import Ignored, Wanted
from holdfast.builds.order import Sandbox
from holdfast.builds.project import BuildSettings, Decided, Project, Secret, decide, read_settings

WHOLE = """
url = "sqlite:///x.db"

[builds]
folder = "out"
cache = 7
disk_reserve = 0
builders = 3
keep = 86400
url = "https://ci.example.org/"

[projects.demo]
repository = "https://forge.example.org/me/demo.git"
build_file = "ci/build.toml"
github = { secret_env = "DEMO_SECRET" }
gitlab = { secret_file = "secret.txt" }
events = ["push", "pull_request"]
branches = ["main", "release/*"]
rebuild_label = "again"
strangers = "never"
supersede = true
public_badge = true
web = "https://forge.example.org/me/demo"
timeout = 60
silence_timeout = 10
status = { forge = "github", token_env = "TOKEN" }
env = { MODE = "ci" }
secrets = { KEY = { secret_env = "KEY" } }
sandbox = "none"
network = false
limits = { memory = 1000, disk = 5000, outputs = 5 }
"""


def settings(text: str) -> BuildSettings:
    found = read_settings(tomllib.loads(text), "holdfast.toml")
    assert found is not None
    return found


def test_everything_that_may_be_said_is_read() -> None:
    found = settings(WHOLE)
    assert (found.folder, found.cache, found.builders, found.keep, found.url) == (
        "out",
        7,
        3,
        86400,
        "https://ci.example.org",
    )
    demo = found.projects["demo"]
    assert demo.hooks == {"github": Secret("DEMO_SECRET"), "gitlab": Secret(None, "secret.txt")}
    assert (demo.timeout, demo.silence_timeout, demo.supersede, demo.sandbox) == (60, 10, True, Sandbox.NONE)
    assert demo.status is not None
    assert (demo.status.url, demo.status.repository) == ("https://api.github.com", "me/demo")
    assert (demo.limits.memory, demo.limits.disk, demo.limits.outputs) == (1000, 5000, 5)


def test_little_has_to_be_said() -> None:
    found = settings('[projects.demo]\nrepository = "file:///srv/demo.git"\ngithub = { secret_env = "S" }')
    demo = found.projects["demo"]
    assert (found.folder, found.cache, found.builders, found.disk_reserve) == ("builds", 200, 2, 1 << 30)
    assert (demo.build_file, demo.timeout, demo.silence_timeout) == ("holdfast.build.toml", 600, 300)
    assert (demo.strangers, demo.public_badge, demo.supersede) == ("label", False, False)
    assert read_settings({"url": "x"}, "holdfast.toml") is None


@pytest.mark.parametrize("said", ['public_badge = "all"', "public_badge = true", 'default_branch = "trunk"'])
def test_what_the_badge_shows_may_be_said(said: str) -> None:
    name, _, value = said.partition(" = ")
    found = settings(f'[projects.demo]\nrepository = "/x"\n{said}').projects["demo"]
    assert getattr(found, name) == {"true": True}.get(value, value.strip('"'))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[projects.demo]\nrepository = "/x"\npublic_badge = "main"', "it is true"),
        ('[projects.demo]\nrepository = "/x"\npublic_badge = 1', "it is true"),
        ('[projects.demo]\nrepository = "/x"\ndefault_branch = "--x"', "`default_branch`: Branch"),
        ('[builds]\nfoldr = "x"', "unknown key `foldr`; the nearest known one is `folder`"),
        (
            '[projects.demo]\nrepositry = "x"',
            "`projects.demo`: unknown key `repositry`; the nearest known one is `repository`",
        ),
        (
            '[projects.demo]\nrepository = "https://x/y"\ngithub = { secret_evn = "x" }',
            "nearest known one is `secret_env`",
        ),
        ('[projects.demo]\nrepository = "https://x/y"\ngithub = "hunter2"', "a secret does not stand in the settings"),
        ('[projects.demo]\nrepository = "https://x/y"\ngithub = {}', "by `secret_env` or `secret_file`"),
        ("[projects.demo]\ntimeout = 3", "has no `repository`"),
        ('[projects.demo]\nrepository = "--upload-pack=x"', "give https"),
        ('[projects.demo]\nrepository = "ext::sh -c x"', "give https"),
        ('[projects."a b"]\nrepository = "https://x/y"', "Project name"),
        ('[projects.demo]\nrepository = "https://x/y"\nevents = ["pushed"]', "it may be push, tag, pull_request"),
        ('[projects.demo]\nrepository = "https://x/y"\nbuild_file = "../x"', "inside the repository"),
        ('[projects.demo]\nrepository = "https://x/y"\ntimeout = 0', "seconds above 0"),
        ('[projects.demo]\nrepository = "https://x/y"\ntimeout = true', "seconds above 0"),
        ('[projects.demo]\nrepository = "https://x/y"\nenv = { LD_PRELOAD = "x" }', "LD_PRELOAD"),
        ('[projects.demo]\nrepository = "https://x/y"\nsandbox = "docker"', "auto, bubblewrap, none"),
        ('[projects.demo]\nrepository = "file:///x"\nstatus = { token_env = "T" }', "has no `forge`"),
        ('[projects.demo]\nrepository = "file:///x"\nstatus = { forge = "gitea", token_env = "T" }', "has no `url`"),
        (
            '[projects.demo]\nrepository = "file:///x"\nstatus = { forge = "github", token_env = "T" }',
            "has no `repository`",
        ),
        ('[projects.demo]\nrepository = "https://x/y"\nstatus = { forge = "github" }', "token_env"),
        ("[builds]\nbuilders = 0", "1 or more"),
        ("[builds]\ncache = -1", "0 or more"),
        ("[builds]\ndisk_reserve = -1", "0 or more"),
        ('[projects.demo]\nrepository = "https://x/y"\nnetwork = "hosts"', 'true, false or "host"'),
        ('[projects.demo]\nrepository = "https://x/y"\nlimits = { disks = 5 }', "nearest known one is `disk`"),
        ("builds = 3", "it is a table"),
        ("projects = 3", "a table for each"),
    ],
)
def test_a_mistake_says_where_it_stands_and_what_may_stand_there(text: str, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        settings(text)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "path"),
    [("https://f/me/demo.git", "me/demo"), ("ssh://git@f:22/me/demo", "me/demo"), ("git@f:me/demo.git", "me/demo")],
)
def test_the_forge_names_the_repository_as_its_address_does(address: str, path: str) -> None:
    text = f'[projects.demo]\nrepository = "{address}"\nstatus = {{ forge = "github", token_env = "T" }}'
    status = settings(text).projects["demo"].status
    assert status is not None
    assert status.repository == path


class TestWhatAProjectWants:
    wanted = Wanted(commit="ab" * 20, ref="refs/heads/main", branch="main")
    pull = Wanted(commit="ab" * 20, ref="refs/pull/1/head", branch="x", pull_request=1)

    def project(self, **more: Any) -> Project:
        return Project(name="demo", repository="https://x/y", **more)

    def refused(self, project: Project, wanted: Wanted) -> str:
        found = decide(project, wanted)
        assert isinstance(found, Ignored)
        return found.why

    def test_is_everything_at_first(self) -> None:
        for wanted in (self.wanted, self.pull, Wanted(commit="ab" * 20, ref="refs/tags/v1", tag="v1")):
            assert decide(self.project(), wanted) == Decided(wanted, False)

    def test_may_be_some_events_and_branches(self) -> None:
        assert "pull_request" in self.refused(self.project(events=("push",)), self.pull)
        assert "branch" in self.refused(self.project(branches=("release/*",)), self.wanted)
        assert isinstance(decide(self.project(branches=("m*",)), self.wanted), Decided)
        assert isinstance(decide(self.project(branches=("release/*",)), self.pull), Decided)

    def test_is_a_rebuild_when_the_label_says_so(self) -> None:
        labelled = Wanted(**{**_as_dict(self.pull), "labels": ("rebuild", "bug")})
        assert decide(self.project(), labelled) == Decided(labelled, True)
        assert "rebuild" in self.refused(self.project(), Wanted(**{**_as_dict(self.pull), "labels": ("bug",)}))
        assert "again" in self.refused(self.project(rebuild_label="again"), labelled)

    def test_is_a_strangers_commit_only_when_a_maintainer_says_so(self) -> None:
        stranger = Wanted(**{**_as_dict(self.pull), "stranger": True})
        approved = Wanted(**{**_as_dict(stranger), "labels": ("rebuild",)})
        assert "maintainer" in self.refused(self.project(), stranger)
        assert decide(self.project(), approved) == Decided(approved, True)
        assert "other repositories" in self.refused(self.project(strangers="never"), approved)
        assert decide(self.project(strangers="build"), stranger) == Decided(stranger, False)


def _as_dict(wanted: Wanted) -> dict[str, Any]:
    return {name: getattr(wanted, name) for name in wanted.__struct_fields__}
