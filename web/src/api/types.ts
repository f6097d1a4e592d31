// What the API answers, as far as the page reads it; each record has the name of its Python class in voda/wire, and
// tests/integration/api/test_dashboard_types.py compares it with /openapi.json.

/** RFC 3339. */
export type Instant = string;

export interface CallerView {
  user: string;
  role: string;
  warning: string;
}

export interface SessionView {
  token: string;
}

export interface ShareView {
  pod: string;
  milli: number;
  memory_mib: number;
}

export interface GpuView {
  index: number;
  name: string;
  is_present: boolean;
  memory_mib: number;
  free_milli: number;
  shares: ShareView[];
  job: string;
}

export interface NodeView {
  name: string;
  pool: string;
  gpus: number;
  foreign_gpus: number;
  used_gpus: number;
  free_gpus: number;
  is_ready: boolean;
  is_schedulable: boolean;
  is_draining: boolean;
  drain_message: string;
  silent_since: Instant | null;
  labels: Record<string, string>;
  taints: string[];
  jobs: Record<string, number>;
  devices: GpuView[];
}

export interface PoolView {
  name: string;
  nodes: number;
  gpus: number;
  shared_gpus: number;
  used_gpus: number;
  waiting: number;
  running: number;
  plan: number;
  settings: { policy: string; placer: string };
}

/** What the page takes of a JobView that has ended. */
export interface JobView {
  job_id: string;
  name: string;
  user: string;
  pool: string;
  virtual_cluster: string;
  labels: Record<string, string>;
  phase: string;
  message: string;
  running_s: number;
  finished_at: Instant | null;
}

export interface JobList {
  items: JobView[];
}

export interface ServiceView {
  version: string;
  pools: string[];
  position: number;
  policies: string[];
  placers: string[];
}

export interface RunFiguresView {
  avg_jct_s: number;
  p50_jct_s: number;
  p90_jct_s: number;
  makespan_s: number;
  avg_queueing_s: number;
  restarts_per_job: number;
  /** 0 to 1. */
  utilisation: number;
}

export interface JobShiftView {
  job_id: string;
  recorded_jct_s: number;
  resimulated_jct_s: number;
  what_if_jct_s: number;
}

export interface SeriesView {
  since: Instant;
  until: Instant;
  gpus_in_use: number[];
  capacity: number[];
  running: number[];
  waiting: number[];
}

export interface ComparisonView {
  policy: string;
  placer: string;
  jobs: number;
  left_out: number;
  recorded: RunFiguresView;
  resimulated: RunFiguresView;
  what_if: RunFiguresView;
  winners: JobShiftView[];
  losers: JobShiftView[];
}

export interface WhatIfView {
  what_if_id: string;
  position: number;
  pool: string;
  policy: string;
  placer: string;
  fair_share: string;
  state: "waiting" | "running" | "done" | "failed";
  progress: number;
  step: string;
  error: string;
  comparison: ComparisonView | null;
  recorded: SeriesView | null;
  what_if: SeriesView | null;
}

export interface ForecastView {
  position: number | null;
  starts_at: Instant | null;
  finishes_at: Instant | null;
  made_at: Instant | null;
}

export interface GpuShareView {
  milli: number;
  memory_mib: number;
}

export interface MomentJobView {
  job_id: string;
  name: string;
  namespace: string;
  user: string;
  pool: string;
  labels: Record<string, string>;
  virtual_cluster: string;
  priority: number;
  kind: string;
  state: string;
  min_replicas: number;
  max_replicas: number;
  requested_replicas: number;
  gpus_per_replica: number;
  share: GpuShareView | null;
  replicas: number;
  planned_replicas: number;
  /** Under its virtual cluster's guarantee, the others borrow; null: it has none. */
  guaranteed_replicas: number | null;
  gpus: number;
  nodes: Record<string, number>;
  message: string;
  submitted_at: Instant;
  started_at: Instant | null;
  epochs_done: number;
  epochs: number;
  forecast: ForecastView;
}

export interface MomentView {
  position: number;
  at: Instant;
  end: number;
  pools: PoolView[];
  nodes: NodeView[];
  jobs: MomentJobView[];
}

export interface ChangesView {
  position: number;
  at: Instant;
  end: number;
  pools: PoolView[];
  nodes: NodeView[];
  jobs: MomentJobView[];
  gone_jobs: string[];
  gone_nodes: string[];
}

export interface ChangesList {
  position: number;
  at: Instant;
  end: number;
  items: ChangesView[];
}

/** Columns of equal length, one place a bucket. */
export interface TimelineView {
  since: Instant;
  until: Instant;
  /** Of the log's first and last event; null: it has none. */
  begins_at: Instant | null;
  ends_at: Instant | null;
  /** How far the log was read for this. */
  known_until: Instant | null;
  at: number[];
  gpus_in_use: number[];
  capacity: number[];
  running: number[];
  waiting: number[];
  decisions: number[];
  resizes: number[];
  failures: number[];
}

export interface DecisionView {
  position: number;
  decided_at: Instant;
  plan: number;
  policy: string;
  before: string[];
  after: string[];
  message: string;
  cause: string;
}

export interface BeliefView {
  value: number | null;
  known_by: string;
  spread: number | null;
}

export interface EstimateView {
  remaining_s: BeliefView;
  epochs_known_by: string;
  speedup: BeliefView;
  resize_cost_s: BeliefView;
  doubt: string;
}

export interface ExplanationView {
  job_id: string;
  phase: string;
  since: Instant;
  policy: string;
  message: string;
  obstacle: string;
  next_message: string;
  gpu: string;
  last_failure: string;
  program_failures: number;
  suggestions: string[];
  estimate: EstimateView | null;
  decisions: DecisionView[];
}

export interface ReportView {
  epochs_done: number;
  reported_at: Instant;
  workers: number;
  epoch_s: number | null;
  /** A number, or the word of one that JSON has none for: nan, inf, -inf. */
  metrics: Record<string, number | string>;
}

export interface ReportList {
  items: ReportView[];
}

export interface EventView {
  position: number;
  stream: string;
  type: string;
  recorded_at: Instant;
  actor: string;
  message: string;
  data: Record<string, unknown>;
}

export interface EventList {
  items: EventView[];
  last_position: number;
  end: number;
}

/** RFC 9457. */
export interface Problem {
  title: string;
  status: number;
  detail: string;
}
