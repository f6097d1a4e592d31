// What a job's plots show, as columns. Pure.

import type { DecisionView, ReportView, SeriesView } from "../api/types.ts";

export interface Series {
  name: string;
  /** Seconds since the epoch. */
  times: number[];
  values: number[];
  isStepped: boolean;
}

const MOST_METRICS = 6;

/** Return the replicas that each decision gave, up to a moment in milliseconds. */
export function replicaSeries(decisions: readonly DecisionView[], until: number): Series {
  const times = decisions.map((each) => Date.parse(each.decided_at) / 1000);
  const values = decisions.map((each) => each.after.length);
  const last = values[values.length - 1];
  const end = Math.max(until / 1000, times[times.length - 1] ?? 0);
  if (last !== undefined && end > (times[times.length - 1] ?? end)) {
    times.push(end);
    values.push(last);
  }
  return { name: "Replicas planned", times, values, isStepped: true };
}

/** Return epochs done, seconds an epoch, and the first metrics by name. */
export function reportSeries(reports: readonly ReportView[]): Series[] {
  const names = [...new Set(reports.flatMap((each) => Object.keys(each.metrics)))].sort().slice(0, MOST_METRICS);
  return [
    column("Epochs done", reports, (each) => each.epochs_done),
    column("Seconds an epoch", reports, (each) => each.epoch_s),
    ...names.map((name) => column(name, reports, (each) => each.metrics[name])),
  ];
}

function column(name: string, reports: readonly ReportView[], value: (report: ReportView) => unknown): Series {
  const rows = reports
    .map((each) => ({ time: Date.parse(each.reported_at) / 1000, value: value(each) }))
    .filter((row): row is { time: number; value: number } => typeof row.value === "number" && Number.isFinite(row.value))
    // uPlot wants times that rise.
    .filter((row, index, all) => index === 0 || row.time > (all[index - 1]?.time ?? 0));
  return { name, times: rows.map((row) => row.time), values: rows.map((row) => row.value), isStepped: false };
}

/** Return a level of two runs over the same stretches of time: times in seconds, then both. */
export function pairedSeries(one: SeriesView, other: SeriesView, level: "gpus_in_use" | "waiting"): [number[], number[], number[]] {
  const [since, until] = [Date.parse(one.since) / 1000, Date.parse(one.until) / 1000];
  const values = one[level];
  const step = (until - since) / Math.max(1, values.length);
  return [values.map((_value, index) => since + (index + 0.5) * step), values, other[level]];
}
