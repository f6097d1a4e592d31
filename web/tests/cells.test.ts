import assert from "node:assert/strict";
import { test } from "node:test";
import { CellBook, cellsOf, FOREIGN, Guarantees } from "../src/draw/cells.ts";
import { aGpu, aJob, aNode } from "./builders.ts";

test("jobs get cells in the order of their ids, others than voda's jobs from the back", () => {
  assert.deepEqual(cellsOf(aNode("n", { jobs: { b: 1, a: 1 }, foreign_gpus: 1 })), ["a", "b", "", FOREIGN]);
});

test("a job keeps its cells when another one leaves or comes", () => {
  const first = cellsOf(aNode("n", { jobs: { a: 1, b: 2 } }));
  const second = cellsOf(aNode("n", { jobs: { b: 2 } }), first);
  assert.deepEqual(second, ["", "b", "b", ""]);
  assert.deepEqual(cellsOf(aNode("n", { jobs: { b: 2, aa: 2 } }), second), ["aa", "b", "b", "aa"]);
});

test("a job that shrinks gives its last cells back", () => {
  assert.deepEqual(cellsOf(aNode("n", { jobs: { a: 1 } }), ["a", "a", "a", ""]), ["a", "", "", ""]);
});

test("where it is known which GPU a worker has, that one is drawn, whatever was drawn before", () => {
  const devices = [aGpu(0), aGpu(1), aGpu(2, { job: "a" }), aGpu(3)];
  assert.deepEqual(cellsOf(aNode("n", { jobs: { a: 1 }, devices }), ["a", "", "", ""]), ["", "", "a", ""]);
});

test("parts of a GPU are one cell", () => {
  const share = (pod: string, milli: number) => ({ pod, milli, memory_mib: 0 });
  const devices = [aGpu(0, { shares: [share("default/x", 250), share("default/y", 500)] })];
  const cells = cellsOf(aNode("n", { gpus: 2, jobs: { a: 1 }, devices }));
  assert.deepEqual(cells, [[{ owner: "x", milli: 250 }, { owner: "y", milli: 500 }], "a"]);
});

test("a node that says fewer GPUs than its jobs hold has as many cells as it says", () => {
  assert.deepEqual(cellsOf(aNode("n", { gpus: 1, jobs: { a: 3 } })), ["a"]);
  assert.deepEqual(cellsOf(aNode("n", { gpus: 0, jobs: { a: 3 } })), []);
});

test("the book asks a node once, and forgets those that are no more", () => {
  const book = new CellBook();
  const node = aNode("n", { jobs: { a: 1 } });
  assert.equal(book.cells(node), book.cells(node));
  book.keep(new Map());
  assert.deepEqual(book.cells(aNode("n", { jobs: { b: 1 } }))[0], "b");
});

test("of a job's cells the first are guaranteed, the others borrowed; without virtual clusters all are its own", () => {
  const jobs = [aJob("a", { guaranteed_replicas: 1, gpus_per_replica: 2 }), aJob("b", { guaranteed_replicas: 0 }), aJob("c")];
  const guarantees = new Guarantees(new Map(jobs.map((job) => [job.job_id, job])));
  assert.deepEqual(["a", "a", "a", "b", "c", "?"].map((job) => guarantees.take(job)), [true, true, false, false, true, true]);
});
