"""docs/reference/settings.md: what can be set, where, and what it is if nobody sets it."""

import inspect
import json
from collections.abc import Iterable, Mapping

from msgspec import NODEFAULT, Struct, structs

from docs.generator import text
from holdfast import App
from holdfast.builds import project
from holdfast.builds.order import Limits
from holdfast.builds.project import BuildSettings, Project
from holdfast.config import FILE_NAME, KNOWN, TABLES_OF_BUILDS, variable_of
from holdfast.worker.settings import WorkerSettings

APP = {
    "db_config": ("HOLDFAST_URL", "`sqlite:///holdfast.db`", "The database: a URL, a mapping, or JSON that names one. See below."),
    "name": ("HOLDFAST_INSTANCE", "`holdfast`", "The instance: its jobs and tables are its own, also in a shared database."),
    "table_naming_strategy": (None, "`<instance>_<queue>`", "A function from instance and queue name to the queue's table name."),
    "heartbeat": ("HOLDFAST_HEARTBEAT", "5", "Seconds between two signs of life of a worker."),
    "lost_after": ("HOLDFAST_LOST_AFTER", "30", "Seconds without one after which a worker is called lost; at least twice `heartbeat`."),
    "patience": (None, None, "Seconds for which a call tries to reach its database before it raises `Unavailable`. A worker tries for ever."),
    "archive_after": ("HOLDFAST_ARCHIVE_AFTER", "7 days", "Seconds after its end at which a job moves to the archive."),
    "archive_keep": ("HOLDFAST_ARCHIVE_KEEP", "for ever", "Seconds after its end at which it is let go of; on PostgreSQL by whole months."),
    "payload_limit": (None, "1 MiB", "Most bytes of a payload, a result or a checkpoint."),
    "clock": (None, "the machine's", "Where the time comes from; a `MovableClock` in tests."),
}  # fmt: skip
WORKER = {
    "queues": "The queues it works on. None given: all queues of the instance.",
    "concurrency": "Most jobs that run at once in its process.",
    "labels": "What it offers to jobs that require or prefer a label (F20).",
    "duties": "What it does until a [rule](../guides/place-work.md#switch-duties) says otherwise: run jobs, sweep, fire schedules, serve (F20).",
    "name": "How it is shown. Without one: host and process id.",
    "grace": "Seconds that running jobs get when it is told to stop.",
    "poll": "Seconds after which it looks for jobs although nobody told it of one.",
    "forgotten_after": "Seconds after which a due job that nobody finds is looked up from its row.",
    "log_level": "Least level of `logging` records that go to a job's log.",
    "log_limit": "Bytes of a job's log; the oldest lines are dropped. A line counts 100 more than its text.",
    "pumps": "Connections that settle and claim. None: two on PostgreSQL, one on SQLite.",
}
FROM_APP = {"heartbeat", "lost_after", "archive_after", "archive_keep"}
FILE = {
    "url": "The database.",
    "instance": "The instance in it.",
    "heartbeat": "As above.",
    "lost_after": "As above.",
    "archive_after": "As above.",
    "archive_keep": "As above.",
    "worker.queues": "Queues to work on: a list, or words with commas.",
    "worker.labels": "Labels of the worker.",
    "worker.duties": "Duties of the worker. Without it: all.",
    "worker.concurrency": "Most jobs at once in a process.",
    "worker.processes": "How many worker processes. Without it: one.",
    "worker.grace": "Seconds that running jobs get when it stops.",
    "worker.log_level": "Least level of `logging` records that go to a job's log.",
    "serve.host": "The address to listen at. Without it: 127.0.0.1, which only this machine reaches.",
    "serve.port": "The port. Without it: 8765.",
    "serve.allow_host": "Names by which browsers call the server, besides localhost, addresses and the name of `web.public_url`.",
    "serve.from": "Addresses of proxies, or networks as `10.0.0.0/8`: each may open any number of connections.",
    "web.public_url": "The address that people use, where a proxy stands before the server: `https://jobs.example.com`.",
    "web.session_lifetime": "Seconds after its login at which a browser's session ends. Without it: 7 days.",
    "web.session_idle_timeout": "Seconds without use after which a browser's session ends. Without it: 1 day.",
}
BUILDS = {
    "folder": "Where builds are kept, from the settings file: `<folder>/<job_id>` with `generated`, `completed` and `log`. "
    "All processes that build, serve or sweep share it; it is of one instance, and another is refused.",
    "cache": "How many of the completed builds are answered from memory: those used last.",
    "builders": "How many builds run at once, over all processes.",
    "disk_reserve": "Bytes that stay free on the disk of `folder`. Below it no build starts, and below half of it builds that run end in `error`.",
    "keep": "Seconds after which a completed build that nobody has looked into is removed. Without it: never.",
    "url": "Where people find this server, for links on the forge.",
}
SECRET = 'The forge has a hook, `/hooks/{forge}/NAME`, and this is its secret: `{{ secret_env = "VARIABLE" }}` or `{{ secret_file = "path" }}`.'
PROJECTS = {
    "repository": "Where git finds it: `https://…`, `ssh://…`, `git@host:…`, `file:///…` or an absolute path. Required.",
    "build_file": "The [build file](build-file.md), by its path in the repository.",
    **{forge: SECRET.format(forge=forge) for forge in project.FORGES},
    "events": "For what it is built.",
    "branches": "Patterns of the branches whose pushes are built.",
    "rebuild_label": "The label on a pull request that has it built, whatever there is.",
    "strangers": "What has a pull request of another repository built: `label`, a maintainer's; `build`, its coming; `never`, nothing.",
    "supersede": "Whether a new commit on a branch ends the older build, as one on a pull request does.",
    "public_badge": 'What badge needs no token: `true`, that of the default branch; `"all"`, that of every branch; `false`, none.',
    "default_branch": "The branch whose badge is public, and that a badge without a branch shows. Without it: as the forge says in its webhooks, "
    "else as the repository's HEAD says when it is built.",
    "web": "Where people look at the repository: the page of a build links its commit there, as `<web>/commit/<commit>`.",
    "timeout": "Seconds for a whole build.",
    "silence_timeout": "Seconds in which a build may print nothing.",
    "status": "Where commit statuses go: a table, see below. Without it nobody is told.",
    "env": "Variables for the commands of every build: a table of texts.",
    "secrets": "Variables that only trusted builds see, blotted out of their logs: a table of `NAME = { secret_env = … }` or `{ secret_file = … }`.",
    "sandbox": "Where steps run: `bubblewrap`, or not at all; `none`, as plain processes; "
    "`auto`, in bubblewrap where that works, a stranger's never without.",
    "network": "Whether a trusted build in the sandbox has the network of this machine, its own services included. "
    'With `"host"`, a stranger\'s build has it too.',
    "readable": "Paths that the sandbox shows besides the system's own, read-only. "
    "The database, the settings, files with secrets and other builds are never shown.",
    "limits": "What a build may use: a table, see below.",
}
STATUS = {
    "forge": "`github`, `gitlab`, `gitea` or `generic`. Without it: the one that has a hook.",
    "url": "Where its API is. Without it: that of github.com or gitlab.com.",
    "repository": "How the forge names it. Without it: as the address of the repository does.",
    "token_env": "The variable with the token. This one or the next is required.",
    "token_file": "The file with the token.",
}
LIMITS = {
    "memory": "Bytes, of each process and of all together.",
    "processes": "Processes and threads at once.",
    "file_size": "Bytes of any one file.",
    "disk": "Bytes of working copy, clone, home and temporary files together. A file counts as 4 KiB at least.",
    "log": "Bytes of the log.",
    "outputs": "How many files are kept.",
    "output_size": "Bytes of all that are kept together.",
}
FLAGS = {"url": "--url", "instance": "--instance"} | dict.fromkeys(
    (
        *("heartbeat", "lost_after", "archive_after", "archive_keep"),
        *("web.session_lifetime", "web.session_idle_timeout"),
    ),
    "",
)

URLS = """\
| `db_config` | means |
| --- | --- |
| `sqlite:///jobs.db` | an SQLite file in the working directory |
| `sqlite:////var/lib/shop/jobs.db` | an SQLite file by its absolute path |
| `sqlite://:memory:` | SQLite in memory, gone with the `App` |
| `postgresql://user:password@host:5432/database` | PostgreSQL 14 or newer; libpq's parameters may follow a `?` |
| `{"database": "shop", "host": "db"}` | PostgreSQL by libpq's parameter names |
| `{"engine": "sqlite", "database": "jobs.db"}` | an SQLite file |
"""

EXAMPLE = """\
url = "postgresql://jobs@db/shop"
instance = "shop"
lost_after = 60

[worker]
queues = ["mail", "reports"]
concurrency = 20
processes = 2
grace = 30"""


def page() -> str:
    return "\n".join(
        [
            "# Settings\n",
            text.MADE,
            "What code passes to `App` wins. What it leaves open comes from the environment. The command line also reads "
            f"`{FILE_NAME}`: flags win over the environment, the environment over the file.\n",
            "## The app\n\nArguments of `App(…)`:\n",
            text.table(("argument", "environment", "default", ""), app_rows()),
            "## The database\n",
            URLS,
            "## The worker\n\nArguments of `app.worker(…)` and `app.run_worker(…)`:\n",
            text.table(("argument", "default", ""), worker_rows()),
            "`heartbeat`, `lost_after`, `archive_after` and `archive_keep` come from the app.\n",
            f"## The command line\n\nKeys of `{FILE_NAME}`, read from the working directory or from `--config FILE`. A key "
            "that is not known is an error that names the nearest one.\n",
            text.table(("key", "environment", "flag", ""), file_rows()),
            text.block(EXAMPLE, "toml"),
            "## Builds\n\nTables of the same file; there are no variables and flags for them. A secret never stands in the file "
            "itself. [Build on push](../guides/build-on-push.md) has an example.\n",
            "### `[builds]`\n",
            text.table(("key", "default", ""), table_rows(BUILDS, project.BUILDS, BuildSettings)),
            "### `[projects.NAME]`\n",
            text.table(("key", "default", ""), table_rows(PROJECTS, project.PROJECT, Project)),
            "### `status` of a project\n",
            text.table(("key", "default", ""), table_rows(STATUS, project.STATUS, None)),
            "### `limits` of a project\n\nA build that wants more is `failed`.\n",
            text.table(("key", "default", ""), table_rows(LIMITS, Limits.__struct_fields__, Limits)),
        ]
    )


def app_rows() -> list[tuple[str | None, ...]]:
    parameters = inspect.signature(App).parameters
    text.exactly({name: row[2] for name, row in APP.items()}, parameters, "App")
    rows: list[tuple[str | None, ...]] = []
    for name, (variable, default, means) in APP.items():
        given = default or text.code(f"{parameters[name].default:g}")
        rows.append((text.code(name), variable and text.code(variable), given, means))
    return rows


def worker_rows() -> list[tuple[str, ...]]:
    fields = {field.name: field for field in structs.fields(WorkerSettings) if field.name not in FROM_APP}
    text.exactly(WORKER, fields, "WorkerSettings")
    return [
        (text.code(name), text.code(repr(fields[name].default)), text.prose(means)) for name, means in WORKER.items()
    ]


def file_rows() -> list[tuple[str, ...]]:
    assert not set(KNOWN) & set(TABLES_OF_BUILDS)
    text.exactly(FILE, KNOWN, FILE_NAME)
    return [(text.code(key), text.code(variable_of(key)), flag(key), means) for key, means in FILE.items()]


def table_rows(
    meanings: Mapping[str, str], known: Iterable[str], kept_in: type[Struct] | None
) -> list[tuple[str, ...]]:
    text.exactly(meanings, list(known), "the tables of builds")
    fields = {field.name: field.default for field in structs.fields(kept_in)} if kept_in else {}
    return [(text.code(key), default_of(fields.get(key)), means) for key, means in meanings.items()]


def default_of(value: object) -> str:
    """As it would be written in the file; empty where there is none."""
    if value is None or value is NODEFAULT or isinstance(value, Struct):
        return ""
    if isinstance(value, bool):
        return text.code(str(value).lower())
    if isinstance(value, tuple):
        return text.code(json.dumps(value)) if value else ""
    return text.code(
        json.dumps(value) if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else value
    )


def flag(key: str) -> str:
    found = FLAGS.get(key, "--" + key.rpartition(".")[2].replace("_", "-"))
    return text.code(found) if found else ""
