"""Prefect: flows in this process, their states kept by a server of their own on SQLite."""

from prefect import flow, task
from prefect.task_runners import ThreadPoolTaskRunner

from bench.flow_peer import answer, arguments


@task
def noop(number: int) -> int:
    return number


@task
def join(numbers: list[int]) -> int:
    return len(numbers)


@flow(task_runner=ThreadPoolTaskRunner(max_workers=8))
def fan(width: int) -> int:
    first = noop.submit(0)
    found: int = join.submit([noop.submit(number, wait_for=[first]) for number in range(width)]).result()
    return found


@flow
def chain(length: int) -> int:
    last = 0
    for number in range(length):
        last = noop(number)
    return last


if __name__ == "__main__":
    answer(arguments(), fan, chain)
