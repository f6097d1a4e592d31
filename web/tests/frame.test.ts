import assert from "node:assert/strict";
import { test } from "node:test";
import { after, frameOf, runningJobs, totals, waitingJobs } from "../src/state/frame.ts";
import { aChange, aJob, aMoment, aNode } from "./builders.ts";

test("changes replace what they name, drop what is gone, and leave the rest the same objects", () => {
  const before = frameOf(aMoment({ jobs: [aJob("a"), aJob("b")], nodes: [aNode("n1")] }));
  const next = after(before, aChange({ position: 9, jobs: [aJob("b", { replicas: 3 })], gone_jobs: ["a"] }));
  assert.deepEqual([...next.jobs.keys()], ["b"]);
  assert.equal(next.jobs.get("b")?.replicas, 3);
  assert.equal(next.position, 9);
  assert.equal(next.nodes, before.nodes);
  assert.equal(before.jobs.size, 2);
});

test("a job that comes back after it was gone is there once", () => {
  const before = frameOf(aMoment({ jobs: [aJob("a")] }));
  const next = after(before, aChange({ jobs: [aJob("a", { gpus: 4 })], gone_jobs: ["a"] }));
  assert.equal(next.jobs.get("a")?.gpus, 4);
});

test("totals count pools, nodes in trouble, and jobs with and without workers", () => {
  const moment = aMoment({
    jobs: [aJob("a", { replicas: 2, state: "Running" }), aJob("b")],
    nodes: [aNode("n1"), aNode("n2", { is_ready: false }), aNode("n3", { is_schedulable: false })],
  });
  assert.deepEqual(totals(frameOf(moment)), { gpus: 8, used: 2, nodes: 3, troubled: 2, running: 1, waiting: 1 });
});

test("jobs wait in the order of their expected starts, then of submission; the largest runs first", () => {
  const place = (position: number | null) => ({ position, starts_at: null, finishes_at: null, made_at: null });
  const jobs = [
    aJob("late", { submitted_at: "2026-01-01T00:00:09Z" }),
    aJob("second", { forecast: place(2) }),
    aJob("first", { forecast: place(1) }),
    aJob("small", { replicas: 1, gpus: 1 }),
    aJob("large", { replicas: 2, gpus: 8 }),
    aJob("early"),
  ];
  assert.deepEqual(waitingJobs(jobs).map((job) => job.job_id), ["first", "second", "early", "late"]);
  assert.deepEqual(runningJobs(jobs).map((job) => job.job_id), ["large", "small"]);
});
