"""A shop that has something of everything: mail under a limit, cards that are declined, pictures, a nightly report.

It is an app like any other; `holdfast.demo.customers` keeps it busy. Read it from top to bottom for what a declaration
looks like, or copy a part of it.
"""

import logging
import random
from collections.abc import Callable
from itertools import count

from holdfast import WAIT, App, Failed, Fixed, current_job
from holdfast.workflows.task import Task

Sleep = Callable[[float], object]
BIG, SMALL = (1600, 1200), (320, 240)
COLOURS = {"ok": "\x1b[32m", "note": "\x1b[36m", "warn": "\x1b[33m", "end": "\x1b[0m"}
logger = logging.getLogger("shop")
logger.setLevel(logging.INFO)


def make_shop(url: str, sleep: Sleep, name: str | None = None) -> App:
    """The app. Handlers wait by `sleep`, so that a test need not."""
    app = App(url, name=name or "holdfast", heartbeat=2, lost_after=10)
    declare_mail(app, sleep)
    declare_payments(app, sleep)
    declare_pictures(app, sleep)
    declare_report(app, sleep)
    return app


def declare_mail(app: App, sleep: Sleep) -> None:
    """The mail server takes three letters at a time, over all workers."""
    mail = app.queue("mail", throttle_limit=3)

    @mail.job(timeout=20)
    def send(to: str, subject: str) -> str:
        logger.info("connected to the mail server")
        sleep(random.uniform(1.0, 2.5))
        logger.info("%sdelivered%s to %s", COLOURS["ok"], COLOURS["end"], to)
        return f"delivered to {to}"

    @mail.job(time_windows=["22:00-06:00 Europe/Amsterdam"])
    def newsletter(issue: int) -> None:
        """Only at night, so that nobody is disturbed."""
        sleep(1)

    app.schedule("greeting", every=20, job=send, payload={"to": "everybody@example.org", "subject": "Hello {count}"})


def declare_payments(app: App, sleep: Sleep) -> None:
    """Cards are declined, the bank is away at times, and some things have to be signed."""
    payments = app.queue("payments")

    @payments.job(retries=4, retry=Fixed(4))
    def charge(order: int, amount: float) -> str:
        """The bank does not answer twice; the third attempt succeeds."""
        logger.info("asking the bank for %.2f", amount)
        sleep(0.6)
        if current_job().attempt < 3:
            raise ConnectionError(f"bank.example did not answer for order {order}")
        return f"{amount:.2f} charged"

    @payments.job
    def refund(order: int) -> None:
        """An expected failure: trying again would not help."""
        sleep(0.4)
        raise Failed(f"the card of order {order} has expired")

    @payments.job(timeout=3600)
    def approve(order: int) -> object:
        """Somebody has to sign it: `holdfast jobs complete --type approve --key …`."""
        return WAIT(timeout=3600)


def declare_pictures(app: App, sleep: Sleep) -> None:
    """Slow work that says how far it is."""
    pictures = app.queue("pictures")

    @pictures.job(timeout=60)
    def resize(picture: str) -> dict[str, object]:
        job = current_job()
        for part in range(1, 11):
            sleep(random.uniform(0.2, 0.6))
            job.progress(part / 10, f"strip {part} of 10")
            job.log(f"{COLOURS['note']}strip {part:>2}{COLOURS['end']} of 10 of {picture}")
        return {"picture": picture, "sizes": [BIG, SMALL]}


def declare_report(app: App, sleep: Sleep) -> None:
    """A workflow: count, then work in parts, then put together; and clean up whatever happened."""
    report = app.workflow("report", params={"country": "nl"})
    bad_luck = count(1)

    @report.step()
    def collect(task: Task) -> None:
        sleep(1.5)
        task.publish(orders=925)
        task.repartition("sums", packs=(0, 925, 100))

    @report.step()
    def rates(task: Task) -> str:
        sleep(2)
        return "1.08"

    @report.step(after=["collect"], packs=(0, 10, 5), effort=5)
    def sums(task: Task) -> int:
        sleep(random.uniform(0.5, 1.5))
        assert task.pack is not None
        return task.pack.end - task.pack.start + 1

    @report.step(after=["collect"], shards=4, effort=2)
    def charts(task: Task) -> None:
        sleep(random.uniform(0.8, 2.0))

    @report.step(after=["sums", "rates"])
    def totals(task: Task) -> str:
        sleep(1.5)
        return "12 430.75"

    @report.step(after=["totals", "charts"])
    def pages(task: Task) -> None:
        sleep(1)

    @report.step(after=["pages"], can_fail=True)
    def notify(task: Task) -> None:
        sleep(0.5)
        raise Failed("nobody is listening")

    @report.step(after=["pages"], retries=0)
    def upload(task: Task) -> None:
        sleep(1)
        if next(bad_luck) % 3 == 0:
            raise OSError("the disk of the web server is full")

    @report.step(phase=1)
    def tidy(task: Task) -> None:
        sleep(0.5)
