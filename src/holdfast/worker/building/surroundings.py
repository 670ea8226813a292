"""The variables that programs of a build see. Of the worker's own nothing is passed on but what stands here."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.builds.order import BuildOrder

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")
FOR_GIT = (
    *("HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "all_proxy"),
)


def of_steps(order: BuildOrder, home: str, temporary: str, path: Sequence[str], colours: bool = True) -> dict[str, str]:
    """For every step of a build, before what its file says. Secrets are added last, and only for trusted builds."""
    found = _inherited(INHERITED) | {
        "PATH": os.pathsep.join((*order.path, *path)),
        "HOME": home,
        "TMPDIR": temporary,
        "SHELL": "/bin/sh",
        "TERM": "xterm-256color" if colours else "dumb",
        "PAGER": "cat",  # nobody is there to turn a page
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "CI": "true",
        "HOLDFAST": "true",
        "HOLDFAST_PROJECT": order.project,
        "HOLDFAST_COMMIT": order.commit,
        "HOLDFAST_BRANCH": order.branch or "",
        "HOLDFAST_TAG": order.tag or "",
        "HOLDFAST_EVENT": order.event,
    }
    if not colours:
        found["NO_COLOR"] = "1"
    return {**found, **order.env}


def of_git(settings: Path) -> dict[str, str]:
    """For git, which runs outside of any sandbox: nobody's hooks, helpers, templates or settings, and no questions asked."""
    return _inherited(FOR_GIT) | {
        "PATH": os.pathsep.join(own_path()),
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(settings),
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TEMPLATE_DIR": "",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


def facts(order: BuildOrder, variables: Mapping[str, str]) -> dict[str, str]:
    """What conditions may ask for."""
    return {
        "project": order.project,
        "branch": order.branch or "",
        "tag": order.tag or "",
        "event": order.event,
        "commit": order.commit,
        "trusted": "true" if order.trusted else "",
    } | {f"env.{name}": value for name, value in variables.items()}


def own_path() -> tuple[str, ...]:
    """Where the worker itself finds programs, without what depends on the folder one is in."""
    found = tuple(each for each in os.environ.get("PATH", "").split(os.pathsep) if each.startswith("/"))
    return found or SYSTEM_PATH


def _inherited(names: Sequence[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}
