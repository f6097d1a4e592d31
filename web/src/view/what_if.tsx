// Another policy, tried from a moment of the log on: a form, how far the simulation is, and both runs side by side.

import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import type uPlot from "uplot";
import { ask } from "../api/client.ts";
import type { ComparisonView, JobShiftView, RunFiguresView, SeriesView, ServiceView, WhatIfView } from "../api/types.ts";
import { pairedSeries } from "../draw/series.ts";
import type { Frame } from "../state/frame.ts";
import { useModel } from "../state/store.ts";
import { followWhatIf, type WhatIfChoice } from "../state/what_if.ts";
import { clock, counted, fineSpan, significant, span, timeTicks } from "../text/format.ts";
import { Panel } from "./panel.tsx";
import { JumpTo } from "./parts.tsx";
import { Plot } from "./plot.tsx";
import { useTheme } from "./theme.ts";

const AS_RECORDED = "";
/** Jobs below which a mean is an anecdote. */
const FEW = 20;

export function WhatIfPanel({ frame }: { frame: Frame }) {
  const [asked, setAsked] = useState<WhatIfChoice | null>(null);
  const [view, setView] = useState<WhatIfView | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    if (!asked) return;
    const end = new AbortController();
    setError("");
    followWhatIf(asked, setView, end.signal).catch((problem: unknown) => {
      if (!end.signal.aborted) setError(problem instanceof Error ? problem.message : String(problem));
    });
    return () => end.abort();
  }, [asked]);
  const isUnderWay = view?.state === "waiting" || view?.state === "running";
  return (
    <Panel title="What if …" label="What if another policy had decided">
      <Form frame={frame} isUnderWay={isUnderWay} ask={setAsked} />
      {error && (
        <p class="bad" role="alert">
          {error}
        </p>
      )}
      {isUnderWay && view && (
        <p role="status">
          <progress value={view.progress} max={1} aria-label="Progress of the simulation" /> {view.step || "waiting for its turn"} …
        </p>
      )}
      {view?.state === "failed" && <p class="bad">It could not be simulated: {view.error}.</p>}
      {view?.state === "done" && view.comparison && <Answer view={view} comparison={view.comparison} />}
    </Panel>
  );
}

interface FormProps {
  frame: Frame;
  isUnderWay: boolean;
  ask: (choice: WhatIfChoice) => void;
}

function Form({ frame, isUnderWay, ask: submit }: FormProps) {
  const now = useModel((model) => model.now);
  const mode = useModel((model) => model.mode);
  const [service, setService] = useState<ServiceView | null>(null);
  const [pool, setPool] = useState([...frame.pools.keys()][0] ?? "default");
  const [policy, setPolicy] = useState("");
  const [placer, setPlacer] = useState(AS_RECORDED);
  const [isFromHere, setFromHere] = useState(mode !== "live");
  useEffect(() => {
    ask<ServiceView>("").then(setService, () => undefined);
  }, []);
  const recorded = frame.pools.get(pool)?.settings;
  const others = (service?.policies ?? []).filter((each) => each !== recorded?.policy);
  const chosen = policy || others[0] || "";
  const begin = (event: Event) => {
    event.preventDefault();
    submit({ at: isFromHere ? new Date(now).toISOString() : "+0s", pool, policy: chosen, placer });
  };
  return (
    <form class="what-if" onSubmit={begin}>
      <p class="soft">
        {recorded ? `${recorded.policy} decides here. ` : ""}The recorded submissions and nodes are simulated again, at the speeds that the log shows.
      </p>
      {frame.pools.size > 1 && <Choice label="Pool" value={pool} values={[...frame.pools.keys()]} choose={setPool} />}
      <Choice label="Policy" value={chosen} values={others} choose={setPolicy} />
      <Choice label="Placer" value={placer} values={[AS_RECORDED, ...(service?.placers ?? [])]} choose={setPlacer} />
      <label>
        From
        <select value={isFromHere ? "here" : "begin"} onChange={(event) => setFromHere(event.currentTarget.value === "here")}>
          <option value="begin">the log’s beginning</option>
          <option value="here">{mode === "live" ? "now" : clock(now, Date.now())}</option>
        </select>
      </label>
      <button type="submit" disabled={isUnderWay || chosen === ""}>
        Simulate
      </button>
    </form>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  values: readonly string[];
  choose: (value: string) => void;
}

function Choice({ label, value, values, choose }: ChoiceProps) {
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => choose(event.currentTarget.value)}>
        {values.map((each) => (
          <option key={each} value={each}>
            {each || "as recorded"}
          </option>
        ))}
      </select>
    </label>
  );
}

const ROWS: readonly [string, (run: RunFiguresView) => string][] = [
  ["Mean time", (run) => fineSpan(run.avg_jct_s)],
  ["Median time", (run) => fineSpan(run.p50_jct_s)],
  ["90 % within", (run) => fineSpan(run.p90_jct_s)],
  ["Mean waiting", (run) => fineSpan(run.avg_queueing_s)],
  ["All ended in", (run) => fineSpan(run.makespan_s)],
  ["Restarts", (run) => significant(run.restarts_per_job)],
  ["GPUs in use", (run) => `${Math.round(100 * run.utilisation)} %`],
];

function Answer({ view, comparison }: { view: WhatIfView; comparison: ComparisonView }) {
  if (comparison.jobs === 0) {
    return <p>No job was completed in all three runs from that moment on: there is nothing to compare yet.</p>;
  }
  const { recorded, resimulated, what_if: other } = comparison;
  return (
    <>
      {errorOf(comparison) > 0.1 && (
        <p class="warn" role="note">
          The simulation misses the recorded mean time by {Math.round(100 * errorOf(comparison))} %: differences between policies that are not clearly larger
          mean nothing.
        </p>
      )}
      {comparison.jobs < FEW && <p class="soft">With {counted(comparison.jobs, "job")}, means and percentiles say little.</p>}
      <div class="wide">
      <table class="figures">
        <caption>
          {counted(comparison.jobs, "job")} completed in all three runs
          {comparison.left_out > 0 ? `; ${comparison.left_out} left out` : ""}
        </caption>
        <thead>
          <tr>
            <td />
            <th scope="col">recorded</th>
            <th scope="col">simulated again</th>
            <th scope="col">{view.policy}</th>
          </tr>
        </thead>
        <tbody>
          {ROWS.map(([name, figure]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {[recorded, resimulated, other].map((run, index) => (
                <td key={index}>{figure(run)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      </div>
      <p class="soft">The first two columns differ by the error of the simulation, the last two by the policy.</p>
      {view.recorded && view.what_if && (
        <>
          <Pair name="GPUs in use" policy={view.policy} recorded={view.recorded} other={view.what_if} level="gpus_in_use" />
          <Pair name="Jobs waiting" policy={view.policy} recorded={view.recorded} other={view.what_if} level="waiting" />
        </>
      )}
      <Shifts title="Would have ended earlier" jobs={comparison.winners} />
      <Shifts title="Would have ended later" jobs={comparison.losers} />
    </>
  );
}

/** By how much the recorded policy, simulated again, is off; 1 = as much as all of it. */
function errorOf({ recorded, resimulated }: ComparisonView): number {
  return recorded.avg_jct_s > 0 ? Math.abs(resimulated.avg_jct_s / recorded.avg_jct_s - 1) : 0;
}

function Shifts({ title, jobs }: { title: string; jobs: readonly JobShiftView[] }) {
  if (jobs.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul class="plain">
        {jobs.map((job) => (
          <li key={job.job_id}>
            <JumpTo kind="job" name={job.job_id} /> {span(Math.abs(job.resimulated_jct_s - job.what_if_jct_s))} ({fineSpan(job.resimulated_jct_s)} →{" "}
            {fineSpan(job.what_if_jct_s)}; recorded {fineSpan(job.recorded_jct_s)})
          </li>
        ))}
      </ul>
    </>
  );
}

interface PairProps {
  name: string;
  policy: string;
  recorded: SeriesView;
  other: SeriesView;
  level: "gpus_in_use" | "waiting";
}

function Pair({ name, policy, recorded, other, level }: PairProps) {
  const theme = useTheme();
  const data = useMemo<uPlot.AlignedData>(() => pairedSeries(recorded, other, level), [recorded, other, level]);
  const options = useCallback(
    (width: number, height: number): uPlot.Options => ({
      width,
      height,
      padding: [6, 8, 0, 0],
      cursor: { show: false },
      legend: { show: false },
      scales: { y: { range: (_plot, _low, high) => [0, Math.max(1, high) * 1.1] } },
      axes: [
        { stroke: theme.soft, grid: { show: false }, ticks: { show: false }, size: 18, font: "10px system-ui", space: 70, values: (_plot, splits) => timeTicks(splits) },
        { stroke: theme.soft, grid: { stroke: theme.frame, width: 1 }, ticks: { show: false }, size: 44, font: "10px system-ui", space: 24 },
      ],
      series: [{}, { stroke: theme.soft, width: 1.5, points: { show: false } }, { stroke: theme.accent, width: 1.5, points: { show: false } }],
    }),
    [theme],
  );
  return (
    <figure>
      <figcaption>
        {name}: <span class="soft">recorded</span>, <b style={{ color: theme.accent }}>{policy}</b>
      </figcaption>
      <Plot data={data} options={options} height={110} label={`${name} over time, recorded and under ${policy}`} />
    </figure>
  );
}
