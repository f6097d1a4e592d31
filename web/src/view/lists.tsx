// What runs, what waits and why, and the nodes: three lists behind tabs.

import { useMemo, useState } from "preact/hooks";
import type { MomentJobView, NodeView } from "../api/types.ts";
import { type Frame, isTroubled, runningJobs, waitingJobs } from "../state/frame.ts";
import { store, useModel } from "../state/store.ts";
import { matchesJob, matchesNode, parseFilter, type Term } from "../text/filter.ts";
import { counted, percent, relative, replicas, span, whole } from "../text/format.ts";
import { nodeMarks } from "../text/marks.ts";
import { byName } from "../text/order.ts";
import { EndedJobs } from "./ended.tsx";
import { Swatch } from "./parts.tsx";
import { VirtualList } from "./virtual_list.tsx";

type Tab = "running" | "waiting" | "ended" | "nodes";
const TABS: readonly Tab[] = ["running", "waiting", "ended", "nodes"];
const TITLES: Record<Tab, string> = { running: "Running", waiting: "Waiting", ended: "Ended", nodes: "Nodes" };

export function Lists({ frame }: { frame: Frame }) {
  const [tab, setTab] = useState<Tab>("running");
  const filter = useModel((model) => model.filter);
  const terms = useMemo(() => parseFilter(filter), [filter]);
  const jobs = useMemo(() => [...frame.jobs.values()].filter((job) => matchesJob(job, terms)), [frame.jobs, terms]);
  const running = useMemo(() => runningJobs(jobs), [jobs]);
  const waiting = useMemo(() => waitingJobs(jobs), [jobs]);
  const nodes = useMemo(() => shownNodes(frame, terms), [frame.nodes, terms]);
  const counts = { running: running.length, waiting: waiting.length, nodes: nodes.length };
  const isFiltered = terms.length > 0;
  const press = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    const next = TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length] ?? tab;
    setTab(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <section class="lists" aria-label="Jobs and nodes">
      <div class="tabs" role="tablist" onKeyDown={press}>
        {TABS.map((each) => (
          <button
            key={each}
            id={`tab-${each}`}
            role="tab"
            type="button"
            aria-selected={tab === each}
            aria-controls="tab-panel"
            tabIndex={tab === each ? 0 : -1}
            onClick={() => setTab(each)}
          >
            {TITLES[each]} {each !== "ended" && <b>{whole(counts[each])}</b>}
          </button>
        ))}
      </div>
      <div id="tab-panel" class="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        {tab === "running" && <Jobs key="running" jobs={running} label="Running jobs" empty={none("runs", isFiltered)} />}
        {tab === "waiting" && <Jobs key="waiting" jobs={waiting} label="Waiting jobs" empty={none("waits", isFiltered)} />}
        {tab === "ended" && <EndedJobs key="ended" frame={frame} terms={terms} />}
        {tab === "nodes" && <Nodes nodes={nodes} />}
      </div>
    </section>
  );
}

function none(does: string, isFiltered: boolean): string {
  return isFiltered ? `No job that matches the filter ${does}.` : `No job ${does}.`;
}

function shownNodes(frame: Frame, terms: readonly Term[]): NodeView[] {
  return [...frame.nodes.values()]
    .filter((node) => matchesNode(node, terms))
    .sort((a, b) => Number(isTroubled(b)) - Number(isTroubled(a)) || byName(a, b));
}

function Jobs({ jobs, label, empty }: { jobs: readonly MomentJobView[]; label: string; empty: string }) {
  const chosen = useModel((model) => model.job);
  const now = useModel((model) => Math.floor(model.now / 10_000) * 10_000);
  return (
    <VirtualList
      items={jobs}
      rowHeight={62}
      label={label}
      keyOf={(job) => job.job_id}
      empty={empty}
      row={(job) => <JobRow job={job} now={now} isChosen={job.job_id === chosen} />}
    />
  );
}

function JobRow({ job, now, isChosen }: { job: MomentJobView; now: number; isChosen: boolean }) {
  const isAtWork = job.replicas > 0;
  return (
    <button
      type="button"
      class={`row${isChosen ? " chosen" : ""}`}
      aria-pressed={isChosen}
      onClick={() => store.dispatch({ type: "select", job: job.job_id })}
    >
      <Swatch job={job.job_id} isEmpty={!isAtWork} />
      <span class="main">
        <b>{job.name || job.job_id}</b>
        <span class="soft"> {job.user}</span>
      </span>
      <span class="figure">{isAtWork ? counted(job.gpus, "GPU") : place(job)}</span>
      <span class="why" title={job.message}>
        {isAtWork ? progress(job) || job.message : job.message || job.state}
      </span>
      <span class="soft when">{isAtWork ? left(job, now) : start(job, now)}</span>
    </button>
  );
}

function place(job: MomentJobView): string {
  if (job.state !== "Waiting" && job.state !== "Submitted") return job.state;
  return job.forecast.position === null ? job.state : `${ordinal(job.forecast.position)} in line`;
}

function ordinal(place: number): string {
  const tail = place % 100 >= 11 && place % 100 <= 13 ? "th" : (["th", "st", "nd", "rd"][place % 10] ?? "th");
  return `${whole(place)}${tail}`;
}

function progress(job: MomentJobView): string {
  const size = `${replicas(job)} replicas`;
  if (job.epochs <= 0) return job.epochs_done > 0 ? `${size} · epoch ${whole(job.epochs_done)}` : size;
  return `${size} · ${percent(job.epochs_done, job.epochs)} done`;
}

function left(job: MomentJobView, now: number): string {
  const ends = Date.parse(job.forecast.finishes_at ?? "");
  if (!Number.isNaN(ends)) return ends > now ? `ends in ${span((ends - now) / 1000)}` : "ends soon";
  const began = Date.parse(job.started_at ?? "");
  return Number.isNaN(began) ? "" : `for ${span((now - began) / 1000)}`;
}

function start(job: MomentJobView, now: number): string {
  const starts = Date.parse(job.forecast.starts_at ?? "");
  if (!Number.isNaN(starts)) return starts > now ? `starts ${relative(starts, now)}` : "starts soon";
  return `since ${span((now - Date.parse(job.submitted_at)) / 1000)}`;
}

function Nodes({ nodes }: { nodes: readonly NodeView[] }) {
  const chosen = useModel((model) => model.node);
  return (
    <VirtualList
      items={nodes}
      rowHeight={46}
      label="Nodes"
      keyOf={(node) => node.name}
      empty="No node."
      row={(node) => (
        <button
          type="button"
          class={`row node${node.name === chosen ? " chosen" : ""}`}
          aria-pressed={node.name === chosen}
          onClick={() => store.dispatch({ type: "select", node: node.name })}
        >
          <span class="main">
            <b>{node.name}</b>
            <span class="soft"> {node.pool}</span>
          </span>
          <span class="figure">
            {whole(node.used_gpus)} of {counted(node.gpus, "GPU")}
          </span>
          <span class={`why ${nodeMarks(node)[0]?.kind ?? "soft"}`}>
            {nodeMarks(node)
              .map((mark) => mark.text)
              .join("; ") || "ready"}
          </span>
        </button>
      )}
    />
  );
}
