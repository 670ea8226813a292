"""What keeps the shop of the demonstration busy: customers, from their first order until the demonstration ends."""

import random
import threading
from itertools import count

from holdfast.app import App
from holdfast.demo.website import Website

EVERY = 1.0  # seconds between two moments of the shop
NAMES = ("ada", "ben", "cleo", "dan", "eva", "finn", "gerd", "hanna", "ivo", "jo")


class Customers(threading.Thread):
    """Enqueue as people would; `stop` ends it."""

    def __init__(self, app: App, website: Website | None = None, seed: int = 7) -> None:
        super().__init__(name="customers", daemon=True)
        self.app = app
        self.website = website
        self.types = app.job_types
        self.random = random.Random(seed)
        self.orders = count(4711)
        self.over = threading.Event()

    def run(self) -> None:
        for moment in count():
            self.happens(moment)
            if self.over.wait(EVERY):
                return

    def stop(self) -> None:
        self.over.set()
        self.join(10)

    def happens(self, moment: int) -> None:
        """What comes in at each moment; the first one has something of everything."""
        if moment == 0:
            self.only_once()
        if moment % 3 == 0:
            self.send(self.random.randint(2, 5))
        if moment % 8 == 0:
            self.types["charge"].enqueue(order=next(self.orders), amount=self.random.randint(500, 20000) / 100)
        if moment % 4 == 0:
            self.types["resize"].enqueue(picture=f"{self.random.choice(NAMES)}-{moment}.jpg")
        if moment % 25 == 5:
            self.types["refund"].enqueue(order=next(self.orders))
        if moment % 45 == 1 and self.website is not None:
            self.website.change()
        if moment % 30 == 0:
            self.app.workflows["report"].submit(trigger=f"day-{moment // 30 + 1}", params={"day": moment // 30 + 1})

    def only_once(self) -> None:
        self.types["newsletter"].enqueue(issue=12)
        self.types["approve"].using(job_key="order-4710").enqueue(order=4710)
        self.types["send"].using(delay=600).enqueue(to="late@example.org", subject="See you in ten minutes")
        self.app.enqueue("pictures", "transcode", {"film": "summer.mov"})  # a type that nobody handles

    def send(self, letters: int) -> None:
        send = self.types["send"]
        people = [f"{self.random.choice(NAMES)}@example.org" for _ in range(letters)]
        send.enqueue_many([{"to": person, "subject": "Your order"} for person in people])
