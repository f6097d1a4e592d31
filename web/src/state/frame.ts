// The cluster at one moment, and how changes lead from one moment to the next. Pure.

import type { ChangesView, MomentJobView, MomentView, NodeView, PoolView } from "../api/types.ts";

export interface Frame {
  position: number;
  /** Milliseconds since the epoch. */
  at: number;
  /** Last position of the log. */
  end: number;
  pools: ReadonlyMap<string, PoolView>;
  nodes: ReadonlyMap<string, NodeView>;
  jobs: ReadonlyMap<string, MomentJobView>;
}

export function frameOf(moment: MomentView): Frame {
  return {
    position: moment.position,
    at: Date.parse(moment.at),
    end: moment.end,
    pools: new Map(moment.pools.map((pool) => [pool.name, pool])),
    nodes: new Map(moment.nodes.map((node) => [node.name, node])),
    jobs: new Map(moment.jobs.map((job) => [job.job_id, job])),
  };
}

/** Return the frame after some changes; parts that did not change stay the same objects. */
export function after(frame: Frame, changes: ChangesView): Frame {
  return {
    position: changes.position,
    at: Date.parse(changes.at),
    end: changes.end,
    pools: merged(frame.pools, changes.pools, (pool) => pool.name),
    nodes: merged(frame.nodes, changes.nodes, (node) => node.name, changes.gone_nodes),
    jobs: merged(frame.jobs, changes.jobs, (job) => job.job_id, changes.gone_jobs),
  };
}

function merged<T>(
  before: ReadonlyMap<string, T>,
  changed: readonly T[],
  key: (item: T) => string,
  gone: readonly string[] = [],
): ReadonlyMap<string, T> {
  if (changed.length === 0 && gone.length === 0) return before;
  const next = new Map(before);
  for (const name of gone) next.delete(name);
  for (const item of changed) next.set(key(item), item);
  return next;
}

export interface Totals {
  gpus: number;
  used: number;
  nodes: number;
  /** Nodes that are not ready, silent, cordoned or draining. */
  troubled: number;
  running: number;
  waiting: number;
}

export function totals(frame: Frame): Totals {
  const sum: Totals = { gpus: 0, used: 0, nodes: frame.nodes.size, troubled: 0, running: 0, waiting: 0 };
  for (const pool of frame.pools.values()) {
    sum.gpus += pool.gpus;
    sum.used += pool.used_gpus;
  }
  for (const node of frame.nodes.values()) if (isTroubled(node)) sum.troubled += 1;
  for (const job of frame.jobs.values()) {
    if (isRunning(job)) sum.running += 1;
    else sum.waiting += 1;
  }
  return sum;
}

export function isTroubled(node: NodeView): boolean {
  return !node.is_ready || !node.is_schedulable || node.is_draining || node.silent_since !== null;
}

export function isRunning(job: MomentJobView): boolean {
  return job.replicas > 0 || job.state === "Running";
}

/** Return the jobs that run, those with the most GPUs first. */
export function runningJobs(jobs: Iterable<MomentJobView>): MomentJobView[] {
  return [...jobs].filter(isRunning).sort((a, b) => b.gpus - a.gpus || compare(a.job_id, b.job_id));
}

/** Return the jobs that do not run, in the order of their expected starts, then of submission. */
export function waitingJobs(jobs: Iterable<MomentJobView>): MomentJobView[] {
  const place = (job: MomentJobView) => job.forecast.position ?? Number.POSITIVE_INFINITY;
  return [...jobs]
    .filter((job) => !isRunning(job))
    .sort((a, b) => compare(place(a), place(b)) || compare(a.submitted_at, b.submitted_at) || compare(a.job_id, b.job_id));
}

function compare<T extends string | number>(a: T, b: T): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
