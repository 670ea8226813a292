// The commands every peer on Node answers, as bench/peer.py does for those in Python:
//   node peer_NAME.mjs setup|worker|one|many|latency [--marks FILE] --count N
// The database comes from PGHOST, PGUSER and PGDATABASE, the packages from MODULES.
import fs from "node:fs";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";

export const packages = createRequire(process.env.MODULES + "/");
const { values, positionals } = parseArgs({ options: { marks: { type: "string" }, count: { type: "string" } }, allowPositionals: true });
const [command] = positionals;
const count = Number(values.count ?? 0);
const lot = 1000, gap = 20;
const now = () => Number(process.hrtime.bigint()) / 1e9;
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// A peer has `setup`, `work`, which is told what to call for each job, and `client`; a client has `one`, `many` and `close`.
export async function answer(peer) {
  if (command === "worker") {
    process.stdin.on("end", () => process.exit(1)).resume();
    await peer.work(marker());
    return;
  }
  if (command === "setup") await peer.setup();
  else await measure(await peer.client());
  process.exit(0);
}

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

async function measure(client) {
  if (command === "many") console.log(await many(client));
  else if (command === "one") console.log(await oneByOne(client));
  else console.log(JSON.stringify(await steadily(client)));
  await client.close();
}

async function many(client) {
  const began = now();
  for (let start = 0; start < count; start += lot) {
    const size = Math.min(count, start + lot) - start;
    await client.many(Array.from({ length: size }, (_, index) => start + index));
  }
  return now() - began;
}

async function oneByOne(client) {
  await client.one(count);
  const began = now();
  for (let number = 0; number < count; number++) await client.one(number);
  return now() - began;
}

async function steadily(client) {
  await client.one(count);
  await sleep(2000);
  const moments = [];
  let next = now();
  for (let number = 0; number < count; number++) {
    const pause = (next - now()) * 1000;
    if (pause > 1) await sleep(pause);
    next += gap / 1000;
    moments.push(now());
    await client.one(number);
  }
  return moments;
}
