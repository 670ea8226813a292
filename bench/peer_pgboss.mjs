// pg-boss: its handler gets whole batches, so large that they take as long as its shortest pause between two polls.
import { answer, packages } from "./peer.mjs";

const loaded = packages("pg-boss");
const PgBoss = loaded.PgBoss ?? loaded.default ?? loaded;

async function started(supervise) {
  const boss = new PgBoss({
    host: process.env.PGHOST, user: process.env.PGUSER, database: process.env.PGDATABASE, max: 10, schedule: false, supervise,
  });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

async function setup() {
  const boss = await started(false);
  await boss.createQueue("work");
  await boss.stop({ graceful: false });
}

async function work(hit) {
  const boss = await started(true);
  for (let poller = 0; poller < 2; poller++) {
    await boss.work("work", { batchSize: 10000, pollingIntervalSeconds: 0.5 }, async (jobs) => {
      for (const job of jobs) hit(job.data.i);
    });
  }
  process.on("SIGTERM", () => process.exit(0));
}

async function client() {
  const boss = await started(false);
  const insert = boss.insert.length > 1 || loaded.PgBoss ? (jobs) => boss.insert("work", jobs) : (jobs) => boss.insert(jobs);
  return {
    one: (number) => boss.send("work", { i: number }),
    many: (numbers) => insert(numbers.map((number) => ({ name: "work", data: { i: number } }))),
    close: () => boss.stop({ graceful: false }),
  };
}

await answer({ setup, work, client });
