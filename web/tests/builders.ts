// Records as the API answers them, with only what a test says otherwise than usual.

import type { ChangesView, GpuView, MomentJobView, MomentView, NodeView, TimelineView } from "../src/api/types.ts";

export const AT = "2026-01-01T00:00:00Z";

export function aJob(job_id: string, more: Partial<MomentJobView> = {}): MomentJobView {
  return {
    job_id,
    name: job_id,
    namespace: "default",
    user: "ann",
    pool: "default",
    labels: {},
    virtual_cluster: "",
    priority: 0,
    kind: "PyTorchJob",
    state: "Waiting",
    min_replicas: 1,
    max_replicas: 4,
    requested_replicas: 4,
    gpus_per_replica: 1,
    share: null,
    replicas: 0,
    planned_replicas: 0,
    guaranteed_replicas: null,
    gpus: 0,
    nodes: {},
    message: "",
    submitted_at: AT,
    started_at: null,
    epochs_done: 0,
    epochs: 0,
    forecast: { position: null, starts_at: null, finishes_at: null, made_at: null },
    ...more,
  };
}

export function aNode(name: string, more: Partial<NodeView> = {}): NodeView {
  return {
    name,
    pool: "default",
    gpus: 4,
    foreign_gpus: 0,
    used_gpus: 0,
    free_gpus: 4,
    is_ready: true,
    is_schedulable: true,
    is_draining: false,
    drain_message: "",
    silent_since: null,
    labels: {},
    taints: [],
    jobs: {},
    devices: [],
    ...more,
  };
}

export function aGpu(index: number, more: Partial<GpuView> = {}): GpuView {
  return { index, name: "", is_present: true, memory_mib: 0, free_milli: 1000, shares: [], job: "", ...more };
}

export function aMoment(more: Partial<MomentView> = {}): MomentView {
  const settings = { policy: "elastic-fifo", placer: "steady" };
  const pool = { name: "default", nodes: 1, gpus: 8, shared_gpus: 0, used_gpus: 2, waiting: 0, running: 0, plan: 1, settings };
  return { position: 5, at: AT, end: 5, pools: [pool], nodes: [], jobs: [], ...more };
}

export function aChange(more: Partial<ChangesView> = {}): ChangesView {
  return { position: 6, at: AT, end: 6, pools: [], nodes: [], jobs: [], gone_jobs: [], gone_nodes: [], ...more };
}

export function aTimeline(more: Partial<TimelineView> = {}): TimelineView {
  const none = [0, 0, 0];
  return {
    since: AT,
    until: "2026-01-01T00:00:30Z",
    begins_at: AT,
    ends_at: "2026-01-01T00:00:30Z",
    known_until: "2026-01-01T00:00:30Z",
    at: [0, 10, 20].map((second) => Date.parse(AT) / 1000 + second),
    gpus_in_use: none,
    capacity: none,
    running: none,
    waiting: none,
    decisions: none,
    resizes: none,
    failures: none,
    ...more,
  };
}
