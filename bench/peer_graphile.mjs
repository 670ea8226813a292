// Graphile Worker: a local queue of 500, completions in batches.
import { answer, packages } from "./peer.mjs";

const worker = packages("graphile-worker");
const preset = {
  worker: { concurrentJobs: 24, maxPoolSize: 10, preparedStatements: true, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 },
};

async function work(hit) {
  const taskList = { noop: (payload) => hit(payload.i) };
  const runner = await worker.run({ preset, taskList, noHandleSignals: true, logger: new worker.Logger(() => () => {}) });
  process.on("SIGTERM", () => runner.stop().then(() => process.exit(0), () => process.exit(1)));
  await runner.promise;
}

async function client() {
  const made = await worker.makeWorkerUtils({});
  return {
    one: (number) => made.addJob("noop", { i: number }),
    many: (numbers) => made.addJobs(numbers.map((number) => ({ identifier: "noop", payload: { i: number } }))),
    close: () => made.release(),
  };
}

await answer({ setup: () => worker.runMigrations({}), work, client });
