"""The first twenty lines: a queue, a job that is retried, a worker, a result."""

from holdfast import App, Failed, Fixed, current_job

app = App("sqlite:///first.db")
mail = app.queue("mail")


@mail.job(retries=3, retry=Fixed(1))
def send(to: str) -> str:
    if "@" not in to:
        raise Failed(f"{to} is not an address")  # an expected failure: final at once
    if current_job().attempt == 1:
        raise ConnectionError("the mail server is busy")  # any other exception: tried again
    return f"sent to {to}"


if __name__ == "__main__":
    with app.worker():
        job = send.enqueue(to="ada@example.com")
        print(job.unwrap(timeout=30), "in attempt", job.refresh().attempt)
        print(send.enqueue(to="nobody").wait(timeout=30).error)
