// The strip under the slider: GPUs in use and capacity over the log, how many jobs wait, and marks of failures.

import type uPlot from "uplot";
import type { TimelineView } from "../api/types.ts";
import { timeTicks } from "../text/format.ts";
import type { Theme } from "./paint.ts";

export type StripData = [number[], number[], number[], number[]];

export function stripData(view: TimelineView): StripData {
  return [view.at, view.capacity, view.gpus_in_use, view.waiting];
}

export function stripOptions(theme: Theme, width: number, height: number, view: () => TimelineView | null): uPlot.Options {
  return {
    width,
    height,
    padding: [6, 0, 0, 0],
    cursor: { show: false },
    legend: { show: false },
    scales: {
      x: { time: true, range: (_plot, low, high) => bounds(view(), low, high) },
      gpus: { range: (_plot, _low, high) => [0, Math.max(1, high) * 1.08] },
      jobs: { range: (_plot, _low, high) => [0, Math.max(1, high) * 1.6] },
    },
    axes: [
      { stroke: theme.soft, grid: { show: false }, ticks: { stroke: theme.frame, size: 4 }, size: 22, font: "11px system-ui", space: 80, values: (_plot, splits) => timeTicks(splits) },
      { show: false, scale: "gpus" },
      { show: false, scale: "jobs" },
    ],
    series: [
      {},
      { scale: "gpus", stroke: theme.frame, width: 1, fill: theme.free },
      { scale: "gpus", stroke: theme.accent, width: 1.5, fill: `${theme.accent}55` },
      { scale: "jobs", stroke: theme.warn, width: 1.5 },
    ],
    hooks: { draw: [(plot) => marks(plot, view(), theme)] },
  };
}

function bounds(view: TimelineView | null, low: number, high: number): [number, number] {
  if (!view) return [low, high];
  const [since, until] = [Date.parse(view.since) / 1000, Date.parse(view.until) / 1000];
  return [since, Math.max(until, since + 1)];
}

/** Failures are red ticks at the top, resizes small ones at the foot. */
function marks(plot: uPlot, view: TimelineView | null, theme: Theme): void {
  if (!view) return;
  const { ctx, bbox } = plot;
  const ratio = window.devicePixelRatio || 1;
  const tick = (at: number, colour: string, top: number, high: number) => {
    ctx.fillStyle = colour;
    ctx.fillRect(Math.round(plot.valToPos(at, "x", true)), top, 2 * ratio, high * ratio);
  };
  for (const index of completed(view.failures)) tick(view.at[index] ?? 0, theme.bad, bbox.top - 5 * ratio, 6);
  for (const index of completed(view.resizes)) tick(view.at[index] ?? 0, theme.soft, bbox.top + bbox.height - 3 * ratio, 3);
}

/** Return the places at which a running sum reaches another whole number: a count may be spread over several buckets. */
export function completed(counts: readonly number[]): number[] {
  const places: number[] = [];
  let sum = 0.01;
  counts.forEach((count, index) => {
    const before = Math.floor(sum);
    sum += count;
    if (Math.floor(sum) > before) places.push(index);
  });
  return places;
}
