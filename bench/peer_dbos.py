"""DBOS: a workflow is a function, its steps are awaited in it and stored one by one."""

import asyncio
import os

from dbos import DBOS

from bench.flow_peer import answer, arguments

given = arguments()
DBOS(
    config={
        "name": "bench",
        "system_database_url": given.url,
        "log_level": "ERROR",
        "run_admin_server": False,
        "sys_db_pool_size": 20,
    }
)


@DBOS.step()
async def noop(number: int) -> int:
    return number


@DBOS.workflow()
async def fan(width: int) -> int:
    await noop(0)
    done = await asyncio.gather(*(noop(number) for number in range(width)))
    return await noop(len(done))


@DBOS.workflow()
async def chain(length: int) -> int:
    last = 0
    for number in range(length):
        last = await noop(number)
    return last


async def run_fan(width: int) -> None:
    await fan(width)


async def run_chain(length: int) -> None:
    await chain(length)


if __name__ == "__main__":
    DBOS.launch()
    answer(given, run_fan, run_chain)
    os._exit(0)  # its threads would keep us
