// Graphile Worker, on Node: answers the same commands as bench/peer.py.
//   node peer_graphile.mjs setup|worker|one|many|latency [--marks FILE] --count N
// The database comes from PGHOST, PGUSER and PGDATABASE, the packages from MODULES.
import fs from "node:fs";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";

const require = createRequire(process.env.MODULES + "/");
const worker = require("graphile-worker");
const { values, positionals } = parseArgs({ options: { marks: { type: "string" }, count: { type: "string" } }, allowPositionals: true });
const [command] = positionals;
const count = Number(values.count ?? 0);
const lot = 1000, gap = 20;
const now = () => Number(process.hrtime.bigint()) / 1e9;
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// The file has a byte of count and a float of time for each job. Marks are kept here and written a few
// milliseconds later: a system call for every job would weigh on the peer.
function marker() {
  const slots = Math.floor((count + 8) / 8) * 8;
  const counts = Buffer.alloc(slots), times = Buffer.alloc(slots * 8);
  const file = fs.openSync(values.marks, "r+");
  let low = slots, high = -1;
  setInterval(() => {
    if (high < 0) return;
    fs.writeSync(file, times, low * 8, (high - low + 1) * 8, slots + low * 8);
    fs.writeSync(file, counts, low, high - low + 1, low);
    [low, high] = [slots, -1];
  }, 4);
  return (number) => {
    times.writeDoubleLE(now(), number * 8);
    if (counts[number] < 255) counts[number] += 1;
    if (number < low) low = number;
    if (number > high) high = number;
  };
}

async function work() {
  process.stdin.on("end", () => process.exit(1)).resume();
  const hit = marker();
  const preset = {
    worker: { concurrentJobs: 24, maxPoolSize: 10, preparedStatements: true, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 },
  };
  const taskList = { noop: (payload) => hit(payload.i) };
  const runner = await worker.run({ preset, taskList, noHandleSignals: true, logger: new worker.Logger(() => () => {}) });
  process.on("SIGTERM", () => runner.stop().then(() => process.exit(0), () => process.exit(1)));
  await runner.promise;
}

async function enqueue() {
  const client = await worker.makeWorkerUtils({});
  const one = (number) => client.addJob("noop", { i: number });
  const began = now();
  if (command === "many") {
    for (let start = 0; start < count; start += lot) {
      const jobs = [];
      for (let number = start; number < Math.min(count, start + lot); number++) jobs.push({ identifier: "noop", payload: { i: number } });
      await client.addJobs(jobs);
    }
    console.log(now() - began);
  } else if (command === "one") {
    await one(count);
    const warm = now();
    for (let number = 0; number < count; number++) await one(number);
    console.log(now() - warm);
  } else {
    await one(count);
    await sleep(2000);
    const moments = [];
    let next = now();
    for (let number = 0; number < count; number++) {
      const pause = (next - now()) * 1000;
      if (pause > 1) await sleep(pause);
      next += gap / 1000;
      moments.push(now());
      await one(number);
    }
    console.log(JSON.stringify(moments));
  }
  await client.release();
}

if (command === "setup") await worker.runMigrations({});
else if (command === "worker") await work();
else await enqueue();
if (command !== "worker") process.exit(0);
