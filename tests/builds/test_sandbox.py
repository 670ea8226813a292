"""Builds in bubblewrap. Skipped only where it cannot run; the refusals are tested everywhere."""

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.builds.order import Limits, Sandbox
from holdfast.builds.project import Secret
from tests.builds.making import PYTHON, Repository, alive, build, log_of, one_step, order_of, python, unique
from tests.builds.yard import Yard


def bubblewrap_runs() -> bool:
    program = shutil.which("bwrap")
    tried = program and subprocess.run([program, "--unshare-all", "--ro-bind", "/", "/", "true"], check=False)
    return bool(tried) and tried.returncode == 0


needs_bubblewrap = pytest.mark.skipif(not bubblewrap_runs(), reason="bubblewrap cannot run on this machine")
IN = {"sandbox": Sandbox.BUBBLEWRAP}


@needs_bubblewrap
def test_a_build_sees_its_own_working_copy_and_the_systems_programs(repository: Repository, folder: Path) -> None:
    file = one_step(
        "pwd; cat text; git log -1 --format=%H; id -u; tty -s <&1", "echo x > made", outputs="{ made = 'made' }"
    )
    order = repository.order(file, {"text": "hello\n"}, **IN)
    result = build(order, folder)
    assert (result.outcome, result.error) == ("success", None)
    for said in ("/build/source\n", "hello\n", f"{order.commit}\n", "sandbox: bubblewrap"):
        assert said in log_of(folder)
    assert (folder / "generated" / "made").read_text() == "x\n"


@needs_bubblewrap
def test_other_builds_database_tokens_and_homes_cannot_be_read(
    repository: Repository, folder: Path, tmp_path: Path
) -> None:
    other, token, database = folder.parent / "6" / "log", tmp_path / "token", tmp_path / "jobs.db"
    for file in (other, token, database):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("geheim")
    unseen = [
        other,
        token,
        database,
        folder / "log",
        Path("/etc/shadow"),
        Path("/etc/ssl/private"),
        Path.home() / ".ssh",
        Path("/root"),
    ]
    lines = [f"! cat {path} && ! ls {path}" for path in unseen]
    lines += ["! grep -r gehei[m] /build /tmp /var /run /etc", "! ls /proc/*/cwd/../../6"]
    order = repository.order(one_step(*lines), **IN)
    assert build(order, folder).error is None
    assert "geheim\n" not in log_of(folder)


@needs_bubblewrap
def test_what_is_protected_stays_hidden_in_a_folder_that_is_shown(repository: Repository, tmp_path: Path) -> None:
    served, link = tmp_path / "served", tmp_path / "link"
    folder, database, tools = served / "builds" / "7", served / "jobs.db", served / "tools"
    link.symlink_to(served)
    for file, text in (
        (folder.parent / "6" / "log", "geheim"),
        (database, "geheim"),
        (tools / "hello", "#!/bin/sh\necho tool\n"),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tools / "hello").chmod(0o755)
    lines = [f"! touch {tools}/new", "hello | grep tool"]
    lines += [f"! grep -r gehei[m] {place}/jobs.db {place}/builds" for place in (served, link)]
    more = {"readable": (str(served), str(link)), "protected": (str(link / "jobs.db"),), "path": (str(tools),)}
    assert build(repository.order(one_step(*lines), **more, **IN), folder).error is None
    assert "geheim" not in log_of(folder)


@needs_bubblewrap
def test_a_project_protects_database_settings_and_secrets_in_whatever_it_lets_builds_read(
    yard: Callable[..., Yard], repository: Repository, tmp_path: Path
) -> None:
    secrets = {"TOKEN": Secret(file="token")}
    here = yard(sandbox=Sandbox.BUBBLEWRAP, readable=(str(tmp_path),), secrets=secrets)
    for name in ("token", "holdfast.toml", "plain"):
        (here.root / name).write_text("geheim")
    hidden = [*here.app.store.files(), str(here.root / "token"), str(here.root / "holdfast.toml")]
    lines = [f"! test -s {path}" for path in hidden] + [f"test -s {here.root}/plain", f"! ls {here.root}/builds/*"]
    build = here.build(repository.commit(one_step(*lines)))
    assert build.outcome == "success", here.log(build)


@needs_bubblewrap
def test_a_build_can_change_nothing_outside_and_signal_nobody(repository: Repository, folder: Path) -> None:
    lines = (
        "! touch /usr/x",
        "! touch /etc/x",
        "! touch /x",
        f"! kill -0 {os.getpid()}",
        "test $(ls -d /proc/[0-9]* | wc -l) -lt 12",
    )
    assert build(repository.order(one_step(*lines), **IN), folder).error is None


@needs_bubblewrap
@pytest.mark.parametrize("network", [True, False])
def test_the_network_is_as_the_order_says(repository: Repository, folder: Path, network: bool) -> None:
    others = len(Path("/proc/net/dev").read_text().split(":")) - 1 if network else 1
    order = repository.order(one_step(f"test $(grep -c : /proc/net/dev) = {others}"), network=network, **IN)
    assert build(order, folder).error is None


@needs_bubblewrap
def test_a_build_without_a_network_reaches_neither_this_machine_nor_a_metadata_address(
    repository: Repository, folder: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        program = (
            "import socket, sys\n"
            f"for place in (('127.0.0.1', {port}), ('169.254.169.254', 80), ('fd00:ec2::254', 80)):\n"
            "    try:\n"
            "        socket.create_connection(place, 5)\n"
            "    except OSError as error:\n"
            "        print('refused', place[0], error.strerror)\n"
        )
        order = repository.order(
            one_step(python("reach.py")), {"reach.py": program}, network=False, trusted=False, **IN, **PYTHON
        )
        assert build(order, folder).error is None
    log = log_of(folder)
    assert "refused 127.0.0.1 " in log
    assert "refused 169.254.169.254 " in log
    assert "refused fd00:ec2::254 " in log
    assert "sandbox: bubblewrap, no network" in log


@needs_bubblewrap
@pytest.mark.parametrize(
    ("network", "trusted", "has_it"),
    [(True, True, True), (True, False, False), ("host", False, True), ("host", True, True), (False, True, False)],
)
def test_strangers_have_a_network_only_if_the_project_says_host(
    yard: Callable[..., Yard], repository: Repository, network: bool | str, trusted: bool, has_it: bool
) -> None:
    here = yard(sandbox=Sandbox.BUBBLEWRAP, network=network)
    received = here.ask(repository.commit(one_step("true")), stranger=not trusted)
    here.app.run_until_idle()
    log = here.log(received.build.id)
    assert "sandbox: bubblewrap" in log
    assert ("no network" not in log) == has_it


@needs_bubblewrap
def test_a_build_has_no_rights_of_root_and_cannot_get_any(repository: Repository, folder: Path) -> None:
    lines = (
        "grep -E '^Cap(Prm|Eff|Bnd|Amb):.*[1-9a-f]' /proc/self/status && exit 1 || true",
        "! unshare --user true",
        "! unshare --user --map-root-user --mount mount -t tmpfs none /tmp",
        "! mount -t tmpfs none /tmp",
        "! umount /usr",
    )
    assert build(repository.order(one_step(*lines), **IN), folder).error is None


@needs_bubblewrap
def test_no_file_of_a_build_is_in_memory(repository: Repository, folder: Path, tmp_path: Path) -> None:
    """A build can write to no file system in memory, covers over hidden folders included."""
    (tmp_path / "shown" / "hidden").mkdir(parents=True)
    program = (
        "import os\n"
        "own = {os.stat(place).st_dev for place in ('/build/source', '/tmp')}\n"
        "for line in open('/proc/self/mountinfo'):\n"
        "    words, _, rest = line.partition(' - ')\n"
        "    place = words.split()[4]\n"
        "    if rest.split()[0] == 'tmpfs' and os.path.isdir(place) and os.stat(place).st_dev not in own:\n"
        "        try:\n"
        "            open(place + '/file', 'w')\n"
        "        except OSError as error:\n"
        "            print('refused', place)\n"
        "        else:\n"
        "            raise SystemExit(place + ' can be written')\n"
    )
    readable = (*PYTHON["readable"], str(tmp_path / "shown"))
    order = repository.order(
        one_step(
            python("look.py"),
            "echo 1 > /tmp/x",
            "echo 2 > /dev/shm/x",
            "test $(cat /tmp/x /dev/shm/x | tr -d '\\n') = 12",
        ),
        {"look.py": program},
        readable=readable,
        protected=(str(tmp_path / "shown" / "hidden"),),
        **IN,
    )
    assert build(order, folder).error is None
    for place in ("/", "/dev", str(tmp_path / "shown" / "hidden")):
        assert f"refused {place}\n" in log_of(folder)


@pytest.fixture
def old_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `bwrap` as it was before 0.8: it does not know `--disable-userns`."""
    (programs := tmp_path / "old").mkdir()
    (programs / "bwrap").write_text(
        '#!/bin/sh\nfor word do case $word in --disable-userns) echo "bwrap: Unknown option $word" >&2; exit 1;; esac; done\n'
        f'exec {shutil.which("bwrap")} "$@"\n'
    )
    (programs / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


@needs_bubblewrap
@pytest.mark.usefixtures("old_bubblewrap")
class TestWithAnOldBubblewrap:
    @pytest.mark.parametrize("trusted", [True, False])
    def test_the_filter_keeps_user_namespaces_closed(self, repository: Repository, folder: Path, trusted: bool) -> None:
        order = repository.order(one_step("! unshare --user true"), trusted=trusted, **IN)
        assert build(order, folder).error is None
        assert "are open" not in log_of(folder)

    def test_a_machine_without_a_filter_refuses_strangers(
        self, repository: Repository, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(platform, "machine", lambda: "riscv64")
        commit = repository.commit(one_step("unshare --user true"))
        result = build(order_of(repository, commit, trusted=False, **IN), folder)
        assert result.outcome == "error"
        assert "Unknown option --disable-userns" in (result.error or "")
        assert build(order_of(repository, commit, **IN), folder).error is None
        assert "sandbox: bubblewrap, user namespaces are open" in log_of(folder)


@needs_bubblewrap
def test_no_process_is_left_behind(repository: Repository, folder: Path) -> None:
    seconds = unique()
    lines = (f"(setsid nohup sleep {seconds} >/dev/null 2>&1 &)", "sleep 0.1")
    assert build(repository.order(one_step(*lines), **IN), folder).outcome == "success"
    assert not alive(seconds)


@needs_bubblewrap
def test_times_and_limits_hold_in_it(repository: Repository, folder: Path) -> None:
    seconds = unique()
    order = repository.order(one_step(f"setsid sleep {seconds} & sleep {seconds}"), silence_timeout=2, **IN)
    assert "silence timeout" in (build(order, folder).error or "")
    assert not alive(seconds)
    bomb = f"bomb() {{ if [ $1 -gt 0 ]; then bomb $(($1 - 1)) & bomb $(($1 - 1)) & fi; exec sleep {seconds}; }}; bomb 8"
    result = build(repository.order(one_step(bomb), limits=Limits(processes=50), **IN), folder)
    assert result.outcome == "failed"
    assert not alive(seconds)


@needs_bubblewrap
def test_variables_of_the_build_file_cannot_reach_the_programs_that_make_the_sandbox(
    repository: Repository, folder: Path
) -> None:
    result = build(repository.order(one_step("true", env="{ LD_PRELOAD = '/build/source/evil.so' }"), **IN), folder)
    assert result.outcome == "failed"
    assert "LD_PRELOAD" in (result.error or "")
    assert "step only" not in log_of(folder)


@needs_bubblewrap
def test_a_failing_line_and_its_code_are_told_from_inside(repository: Repository, folder: Path) -> None:
    result = build(repository.order(one_step("true", "kill -9 $$"), **IN), folder)
    assert (result.outcome, result.error) == ("failed", "step only: killed by SIGKILL: kill -9 $$")


@pytest.fixture
def without_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with git and little else."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("git", "sh", "env", "cat"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(programs))
    return programs


@pytest.mark.parametrize(
    ("sandbox", "trusted", "why"),
    [(Sandbox.BUBBLEWRAP, True, "one was asked for"), (Sandbox.AUTO, False, "its code is not trusted")],
)
def test_a_sandbox_that_is_missing_is_a_refusal_and_no_downgrade(
    repository: Repository,
    folder: Path,
    tmp_path: Path,
    sandbox: Sandbox,
    trusted: bool,
    why: str,
    without_bubblewrap: Path,
) -> None:
    order = repository.order(one_step(f"touch {tmp_path}/ran"), sandbox=sandbox, trusted=trusted)
    result = build(order, folder)
    assert result.outcome == "error"
    assert f"this build needs a sandbox ({why}) and there is none: there is no program `bwrap` here" in (
        result.error or ""
    )
    assert not (tmp_path / "ran").exists()


def test_a_sandbox_that_does_not_work_is_a_refusal_too(
    repository: Repository, folder: Path, tmp_path: Path, without_bubblewrap: Path
) -> None:
    fake = without_bubblewrap / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    result = build(repository.order(one_step(f"touch {tmp_path}/ran"), sandbox=Sandbox.BUBBLEWRAP), folder)
    assert result.outcome == "error"
    assert "bwrap does not work: bwrap: No permissions to create a new namespace" in (result.error or "")
    assert not (tmp_path / "ran").exists()


def test_without_one_trusted_code_may_run_where_nobody_asked_and_the_log_says_so(
    repository: Repository, folder: Path, without_bubblewrap: Path
) -> None:
    result = build(repository.order(one_step("echo ran"), sandbox=Sandbox.AUTO), folder)
    assert result.outcome == "success"
    assert "no sandbox: there is no program `bwrap` here" in log_of(folder)
