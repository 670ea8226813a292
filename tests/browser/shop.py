"""A shop whose handlers do as the test says: everything that a page can show is there, and stands still."""

import threading
from pathlib import Path
from typing import Any

from holdfast import WAIT, App, Failed, Fixed, current_job
from holdfast.clock import monotonic, sleep
from tests.builds.making import Repository
from tests.builds.yard import Yard

PATIENCE = 60.0
BUILD = r"""
[steps.compile]
run = ["for part in 1 2 3 4; do printf '\\033[36mcompile\\033[0m part %s of 5\\n' $part; done",
       "while [ ! -e {gate} ]; do sleep 0.05; done", "printf '\\033[32mcompile\\033[0m part 5 of 5\\n'"]
outputs = {{ report = "report.txt" }}
[steps.test]
after = ["compile"]
run = ["echo all is well"]
"""


class Shop:
    """The app, its worker, and the gates at which its handlers wait."""

    def __init__(self, folder: Path) -> None:
        self.app = App(f"sqlite:///{folder}/shop.db", name="shop")
        self.gates: dict[str, threading.Event] = {}
        self.declare()
        (folder / "yard").mkdir()
        self.yard = Yard(self.app, folder / "yard", Repository(folder / "repository"))
        self.app.store.queues()
        self.worker = self.app.worker(concurrency=16, name="ada")
        self.worker.start()

    def close(self) -> None:
        for gate in self.gates.values():
            gate.set()
        self.yard.open()
        self.worker.stop(hurry=True)
        self.app.close()

    def gate(self, name: str) -> threading.Event:
        return self.gates.setdefault(name, threading.Event())

    def declare(self) -> None:
        self.declare_jobs()
        self.declare_report()

    def declare_jobs(self) -> None:
        mail = self.app.queue("mail", throttle_limit=3)
        payments, pictures = self.app.queue("payments"), self.app.queue("pictures")

        @mail.job(timeout=600, time_windows=[])
        def send(to: str, subject: str = "Your order") -> str:
            self.gate("send").wait()
            return f"delivered to {to}"

        @payments.job(retries=4, retry=Fixed(3600))
        def charge(order: int, amount: float) -> str:
            raise ConnectionError(f"bank.example did not answer for order {order}")

        @payments.job
        def refund(order: int) -> None:
            raise Failed(f"the card of order {order} has expired")

        @payments.job
        def approve(order: int) -> Any:
            return WAIT(timeout=3600)

        @payments.job(retries=0)
        def echo(text: str) -> str:
            current_job().log(text)
            current_job().progress(0.5, text)
            raise ValueError(text)

        @pictures.job(timeout=600)
        def resize(picture: str) -> dict[str, Any]:
            job = current_job()
            for strip in range(1, 8):
                job.log(f"\x1b[36mstrip {strip:>2}\x1b[0m of 10 of {picture}")
            job.log("\x1b[33mthe colours are a little pale\x1b[0m")
            job.progress(0.7, "strip 7 of 10")
            self.gate("resize").wait()
            job.log("\x1b[1;32mdone\x1b[0m")
            return {"picture": picture}

        self.app.schedule("nightly", cron="0 3 * * *", zone="Europe/Amsterdam", job=send, payload={"to": "all"})
        self.app.schedule("hourly", every=3600, job=refund, payload={"order": 1})

    def declare_report(self) -> None:
        report = self.app.workflow("report", params={"country": "nl"})

        @report.step()
        def collect(task: Any) -> None:
            task.publish(orders=925)

        @report.step()
        def rates(task: Any) -> None: ...

        @report.step(after=["collect"], packs=(0, 925, 100), effort=5, timeout=600)
        def sums(task: Any) -> None:
            if task.pack.start >= 400:
                self.gate("sums").wait()

        @report.step(after=["collect"], shards=4)
        def charts(task: Any) -> None: ...

        @report.step(after=["sums", "rates"])
        def totals(task: Any) -> None: ...

        @report.step(after=["totals", "charts"], retries=0)
        def pages(task: Any) -> None:
            if task.params.get("paper") == "none" and not self.gate("paper").is_set():
                raise OSError("there is no paper")

        @report.step(after=["pages"], can_fail=True)
        def notify(task: Any) -> None:
            raise Failed("nobody is listening")

        @report.step(phase=1)
        def tidy(task: Any) -> None: ...

    def build(self) -> int:
        """A build that waits at its gate."""
        commit = self.yard.repository.commit(BUILD.format(gate=self.yard.gate), {"report.txt": "all is well"})
        build: int = self.yard.ask(commit, title="Announce the sale", author="Ada").build.id
        self.until(lambda: "part 4 of 5" in self.yard.log(build))
        return build

    def open(self) -> None:
        """Something of everything, at rest."""
        types = self.app.job_types
        types["send"].enqueue_many([{"to": f"{name}@example.org"} for name in ("ada", "ben", "cleo", "dan", "eva")])
        self.charged = types["charge"].using(job_key="order-4711").enqueue(order=4711, amount=180.59)
        self.refunded = types["refund"].enqueue(order=4712)
        types["approve"].using(job_key="order-4710").enqueue(order=4710)
        self.resized = types["resize"].enqueue(picture="summer.jpg")
        types["send"].using(delay=600).enqueue(to="late@example.org")
        self.app.enqueue("pictures", "transcode", {"film": "summer.mov"})
        report = self.app.workflows["report"]
        self.gate("sums").set()
        report.submit("2026-11-14").wait(PATIENCE)
        report.submit("2026-11-15", params={"paper": "none"}).wait(PATIENCE)
        self.gate("sums").clear()
        self.run = report.submit("2026-11-16")
        self.built = self.build()
        self.until(lambda: self.app.get(self.refunded.id).final)
        self.until(lambda: self.app.get(self.charged.id).state == "error")
        self.until(lambda: self.app.get(self.resized.id).progress is not None)
        self.until(lambda: self.run.refresh().steps["charts"].done)

    def until(self, happened: Any) -> None:
        ends = monotonic() + PATIENCE
        while not happened():
            assert monotonic() < ends, "it did not happen"
            sleep(0.02)
