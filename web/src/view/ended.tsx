// Jobs that have ended, the newest first: how each ended, and when.

import { useEffect, useMemo, useState } from "preact/hooks";
import { ask } from "../api/client.ts";
import type { JobView, JobList } from "../api/types.ts";
import type { Frame } from "../state/frame.ts";
import { store, useModel } from "../state/store.ts";
import { matchesJob, type Term } from "../text/filter.ts";
import { relative, span } from "../text/format.ts";
import { Swatch } from "./parts.tsx";
import { VirtualList } from "./virtual_list.tsx";

const NEWEST = 500;
const ENDS = ["Completed", "Failed", "Canceled"] as const;
/** Jobs that leave the cluster together are asked for once. */
const CALM_MS = 600;

export function EndedJobs({ frame, terms }: { frame: Frame; terms: readonly Term[] }) {
  const [jobs, setJobs] = useState<readonly JobView[] | null>(null);
  const [problem, setProblem] = useState("");
  const chosen = useModel((model) => model.job);
  const now = useModel((model) => Math.floor(model.now / 10_000) * 10_000);
  const live = [...frame.jobs.keys()].join(" ");
  useEffect(() => {
    const left = new AbortController();
    const fetch = () =>
      ask<JobList>("/jobs", { query: { phase: ENDS, sort: "-submitted_at", limit: NEWEST }, signal: left.signal }).then(
        (list) => {
          setProblem("");
          setJobs(list.items);
        },
        (error: unknown) => !left.signal.aborted && setProblem(error instanceof Error ? error.message : String(error)),
      );
    const timer = setTimeout(() => void fetch(), jobs === null ? 0 : CALM_MS);
    return () => {
      clearTimeout(timer);
      left.abort();
    };
  }, [live]);
  const shown = useMemo(() => (jobs ?? []).filter((job) => endedBy(job, frame.at) && matchesJob({ ...job, state: job.phase, nodes: {} }, terms)), [jobs, frame.at, terms]);
  if (problem) return <p class="bad">{problem}</p>;
  const none = (jobs?.length ?? 0) < NEWEST ? "No job has ended." : `None of the ${NEWEST} jobs that were submitted last had ended: \`voda get --all\` lists the others.`;
  return (
    <VirtualList
      items={shown}
      rowHeight={62}
      label="Ended jobs"
      keyOf={(job) => job.job_id}
      empty={jobs === null ? "Asking …" : terms.length > 0 ? "No ended job matches the filter." : none}
      row={(job) => <Row job={job} now={now} isChosen={job.job_id === chosen} />}
    />
  );
}

/** Whether a job had ended by a moment, milliseconds. */
function endedBy(job: JobView, at: number): boolean {
  return Date.parse(job.finished_at ?? "") <= at + 1_000;
}

function Row({ job, now, isChosen }: { job: JobView; now: number; isChosen: boolean }) {
  return (
    <button
      type="button"
      class={`row${isChosen ? " chosen" : ""}`}
      aria-pressed={isChosen}
      onClick={() => store.dispatch({ type: "select", job: job.job_id })}
    >
      <Swatch job={job.job_id} isEmpty />
      <span class="main">
        <b>{job.job_id}</b>
        <span class="soft"> {job.user}</span>
      </span>
      <span class={`figure${job.phase === "Failed" ? " bad" : ""}`}>{job.phase}</span>
      <span class="why" title={job.message}>
        {job.message || `ran ${span(job.running_s)}`}
      </span>
      <span class="soft when">{relative(Date.parse(job.finished_at ?? ""), now)}</span>
    </button>
  );
}
