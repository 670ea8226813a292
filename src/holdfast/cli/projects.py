"""The projects of the settings file, and the app that builds them."""

import os
import tomllib
from pathlib import Path

from holdfast.app import App
from holdfast.builds.project import BuildSettings, read_settings
from holdfast.cli import instance
from holdfast.cli.command import Call
from holdfast.cli.module import import_app
from holdfast.config import Settings, locate
from holdfast.projects import Projects


def settings_of(call: Call) -> tuple[BuildSettings, Path] | None:
    """What the settings file says about builds, and the folder that its paths are relative to; None if it says nothing."""
    file = locate(call.config, Path.cwd())
    if file is None:
        return None
    found = read_settings(tomllib.loads(file.read_text("utf-8")), str(file))
    return None if found is None else (found, file.absolute().parent)


def attach(call: Call, app: App) -> Projects | None:
    """Make the app build what the settings file names; None if it names nothing."""
    found = settings_of(call)
    return None if found is None else Projects(app, *found, os.environ)


def looking_at(call: Call, app: App) -> Projects:
    """To look at builds and to act on them, without being able to build."""
    settings, root = settings_of(call) or (BuildSettings(), Path.cwd())
    return Projects(app, settings, root, os.environ, declares=False)


def app_for(call: Call, settings: Settings, target: str) -> tuple[App, Projects | None]:
    """The app of a module, or without one that of the instance, and what it builds."""
    app = import_app(call, settings, target) if target else _of_instance(settings)
    return app, attach(call, app)


def _of_instance(settings: Settings) -> App:
    return instance.named(settings, instance.choose(settings, sets_up=True))
