// Plots of a job: its replicas by what was decided, epochs, and the figures that it reported.

import { useCallback, useMemo } from "preact/hooks";
import uPlot from "uplot";
import type { DecisionView, ReportView } from "../api/types.ts";
import { type Series, reportSeries, replicaSeries } from "../draw/series.ts";
import { significant, timeTicks } from "../text/format.ts";
import { Plot } from "./plot.tsx";
import { useTheme } from "./theme.ts";

interface Props {
  decisions: readonly DecisionView[];
  reports: readonly ReportView[];
  until: number;
}

/** Steps of an axis that counts. */
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

export function JobPlots({ decisions, reports, until }: Props) {
  const all = useMemo(() => [replicaSeries(decisions, until), ...reportSeries(reports)].filter((each) => each.times.length > 1), [decisions, reports, until]);
  if (all.length === 0) return null;
  return (
    <>
      <h3>Over time</h3>
      <div class="plots">
        {all.map((each) => (
          <SmallPlot key={each.name} series={each} />
        ))}
      </div>
    </>
  );
}

function SmallPlot({ series }: { series: Series }) {
  const theme = useTheme();
  const data = useMemo<uPlot.AlignedData>(() => [series.times, series.values], [series]);
  const options = useCallback(
    (width: number, height: number): uPlot.Options => ({
      width,
      height,
      padding: [6, 8, 0, 0],
      cursor: { show: false },
      legend: { show: false },
      scales: { y: { range: (_plot, low, high) => range(low, high, series.isStepped) } },
      axes: [
        { stroke: theme.soft, grid: { show: false }, ticks: { show: false }, size: 18, font: "10px system-ui", space: 70, values: (_plot, splits) => timeTicks(splits) },
        {
          stroke: theme.soft,
          grid: { stroke: theme.frame, width: 1 },
          ticks: { show: false },
          size: 44,
          font: "10px system-ui",
          space: 24,
          ...(series.isStepped ? { incrs: WHOLE } : {}),
          values: (_plot, splits) => splits.map((split) => significant(split)),
        },
      ],
      series: [{}, { stroke: theme.accent, width: 1.5, points: { show: false }, ...(series.isStepped ? { paths: stepped, fill: `${theme.accent}33` } : {}) }],
    }),
    [theme, series.isStepped],
  );
  const last = series.values[series.values.length - 1];
  return (
    <figure>
      <figcaption>
        {series.name} <b>{last === undefined ? "" : significant(last)}</b>
      </figcaption>
      <Plot data={data} options={options} height={92} label={`${series.name} over time, now ${last ?? "not known"}`} />
    </figure>
  );
}

function range(low: number, high: number, isStepped: boolean): [number, number] {
  if (isStepped) return [0, Math.max(1, high) * 1.1];
  if (!Number.isFinite(low) || low === high) return [low - 1, high + 1];
  return [low - (high - low) * 0.05, high + (high - low) * 0.05];
}

const stepped: uPlot.Series.PathBuilder = (plot, index, from, to) => {
  const build = uPlot.paths.stepped?.({ align: 1 });
  return build ? build(plot, index, from, to) : null;
};
