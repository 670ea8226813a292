"""Settings as they are in force, to be read."""

import platform

from litestar import Router

from holdfast.database_url import shown
from holdfast.jobs.wording import span
from holdfast.version import VERSION
from holdfast.web.pages.page import Html, TheFrame, page
from holdfast.web.site import TheSite


@page("/settings")
def settings(frame: TheFrame, site: TheSite) -> Html:
    app = site.app
    groups = [
        ("Instance", [("instance", app.name), ("database", shown(app.db_config))]),
        (
            "Times",
            [
                ("heartbeat", span(app.heartbeat)),
                ("lost_after", span(app.lost_after)),
                ("patience", span(app.patience)),
                ("archive_after", span(app.archive_after)),
                ("archive_keep", "for ever" if app.archive_keep is None else span(app.archive_keep)),
            ],
        ),
        ("Bounds", [("payload_limit", f"{app.payload_limit:,} bytes")]),
        ("Program", [("Holdfast", VERSION), ("Python", platform.python_version()), ("machine", platform.node())]),
    ]
    with site.reader() as store:
        now = store.now()
    return frame.show("settings.html", now, groups=groups)


router = Router("/", route_handlers=[settings])
