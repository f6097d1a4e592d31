// One job: what it has and why, how far it is, what voda believes of it, what was decided, and what can be done.

import { useEffect, useState } from "preact/hooks";
import { ApiError, ask, jobPath } from "../api/client.ts";
import type { EventList, EventView, ExplanationView, MomentJobView, ReportList, ReportView } from "../api/types.ts";
import type { Frame } from "../state/frame.ts";
import { useModel } from "../state/store.ts";
import { clock, counted, percent, relative, replicas, significant, span, whole } from "../text/format.ts";
import { JobActions } from "./job_actions.tsx";
import { JobPlots } from "./job_plots.tsx";
import { Panel } from "./panel.tsx";
import { JumpTo, Linked, Swatch } from "./parts.tsx";

interface Story {
  explanation: ExplanationView | null;
  reports: ReportView[];
  events: EventView[];
  problem: string;
}

const NO_STORY: Story = { explanation: null, reports: [], events: [], problem: "" };
const NEWEST = 200;
/** While all goes on, the story is told again at most so often. */
const AGAIN_MS = 2_500;

export function JobPanel({ jobId, frame }: { jobId: string; frame: Frame }) {
  const job = frame.jobs.get(jobId);
  const story = useStory(jobId, job, frame);
  const title = (
    <>
      <Swatch job={jobId} isEmpty={!job || job.replicas === 0} />
      {job?.name || jobId}
    </>
  );
  return (
    <Panel title={title} label={`Job ${jobId}`}>
      {job ? <Now job={job} /> : <Gone jobId={jobId} story={story} />}
      {story.problem && (
        <p class="bad" role="alert">
          {story.problem}
        </p>
      )}
      {job && <JobActions job={job} />}
      {story.explanation && <Why explanation={story.explanation} message={job?.message ?? ""} />}
      <JobPlots decisions={story.explanation?.decisions ?? []} reports={story.reports.filter((report) => Date.parse(report.reported_at) <= frame.at)} until={frame.at} />
      {story.explanation && <Belief explanation={story.explanation} />}
      {story.explanation && <Decisions explanation={story.explanation} />}
      <Events events={story.events} />
    </Panel>
  );
}

/** Fetch what is told about a job, again when the job or the moment is another; not while the log is played. */
function useStory(jobId: string, job: MomentJobView | undefined, frame: Frame): Story {
  const [story, setStory] = useState<Story & { of: string }>({ ...NO_STORY, of: "" });
  const mode = useModel((model) => model.mode);
  const position = mode === "live" ? 0 : frame.position;
  useEffect(() => {
    if (mode === "playing") return;
    const ended = new AbortController();
    const isFirst = story.of !== jobId;
    const timer = setTimeout(
      () => void tell(jobId, position, ended.signal).then((told) => !ended.signal.aborted && setStory({ ...told, of: jobId })),
      isFirst ? 0 : mode === "live" ? AGAIN_MS : 150,
    );
    return () => {
      clearTimeout(timer);
      ended.abort();
    };
  }, [jobId, job, position, mode]);
  return story.of === jobId ? story : NO_STORY;
}

async function tell(jobId: string, position: number, signal: AbortSignal): Promise<Story> {
  const at = position > 0 ? { at: position } : {};
  // Newest first; while live, from a position that no log reaches.
  const before = position > 0 ? position + 1 : Number.MAX_SAFE_INTEGER;
  const [explanation, reports, events] = await Promise.allSettled([
    ask<ExplanationView>(jobPath(jobId, "/explain"), { query: at, signal }),
    ask<ReportList>(jobPath(jobId, "/progress"), { signal }),
    ask<EventList>("/events", { query: { job: `@${jobId}`, before, limit: NEWEST }, signal }),
  ]);
  return {
    explanation: explanation.status === "fulfilled" ? explanation.value : null,
    reports: reports.status === "fulfilled" ? reports.value.items : [],
    events: events.status === "fulfilled" ? events.value.items : [],
    problem: signal.aborted ? "" : problemOf(explanation, reports, events),
  };
}

/** What went wrong first; empty: nothing. What is not for this caller, or is kept no more, is left out of the panel. */
function problemOf(explanation: PromiseSettledResult<unknown>, ...others: readonly PromiseSettledResult<unknown>[]): string {
  const isNews = (reason: unknown) => !(reason instanceof ApiError && [403, 404, 410].includes(reason.status));
  const failed = [explanation, ...others.filter((each) => each.status === "rejected" && isNews(each.reason))].find(
    (each) => each.status === "rejected",
  );
  return failed === undefined ? "" : failed.reason instanceof Error ? failed.reason.message : String(failed.reason);
}

function Now({ job }: { job: MomentJobView }) {
  const now = useModel((model) => Math.floor(model.now / 1000) * 1000);
  const { forecast } = job;
  const starts = Date.parse(forecast.starts_at ?? "");
  const finishes = Date.parse(forecast.finishes_at ?? "");
  return (
    <>
      <p class="states">
        <span class={`state ${job.state.toLowerCase()}`}>{job.state}</span>
        <span class="soft">
          {job.user} · {job.pool}
          {job.virtual_cluster ? ` · ${job.virtual_cluster}` : ""}
          {job.priority !== 0 ? ` · priority ${job.priority}` : ""}
        </span>
      </p>
      {job.message && (
        <p class="message">
          <Linked text={job.message} />
        </p>
      )}
      <dl class="facts">
        <Fact name="Replicas" text={`${replicas(job)}${job.planned_replicas !== job.replicas ? `, ${job.planned_replicas} planned` : ""}`} />
        {job.guaranteed_replicas !== null && job.replicas > 0 && <Fact name="Guaranteed" text={guarantee(job.guaranteed_replicas, job.replicas)} />}
        <Fact name="GPUs" text={job.share ? shareText(job.share) : `${whole(job.gpus)}, ${whole(job.gpus_per_replica)} a replica`} />
        {(job.epochs > 0 || job.epochs_done > 0) && (
          <Fact
            name="Epochs"
            text={job.epochs > 0 ? `${whole(job.epochs_done)} of ${whole(job.epochs)}, ${percent(job.epochs_done, job.epochs)}` : whole(job.epochs_done)}
          />
        )}
        {forecast.position !== null && <Fact name="Place in line" text={whole(forecast.position)} />}
        {!Number.isNaN(starts) && <Fact name="Starts" text={`${relative(starts, now)}, if nobody submits more`} />}
        {!Number.isNaN(finishes) && <Fact name="Ends" text={`${relative(finishes, now)}, ${clock(finishes, now, false)}`} />}
        <Fact name="Submitted" text={relative(Date.parse(job.submitted_at), now)} />
        {job.started_at && <Fact name="Started" text={relative(Date.parse(job.started_at), now)} />}
        {Object.keys(job.nodes).length > 0 && (
          <div>
            <dt>Nodes</dt>
            <dd class="names">
              {Object.entries(job.nodes)
                .slice(0, 24)
                .map(([node, workers]) => (
                  <span key={node}>
                    <JumpTo kind="node" name={node} />
                    {workers > 1 ? ` ×${workers}` : ""}
                  </span>
                ))}
              {Object.keys(job.nodes).length > 24 && <span class="soft">and {Object.keys(job.nodes).length - 24} more</span>}
            </dd>
          </div>
        )}
        {Object.keys(job.labels).length > 0 && (
          <Fact
            name="Labels"
            text={Object.entries(job.labels)
              .map(([name, value]) => `${name}=${value}`)
              .join(", ")}
          />
        )}
      </dl>
      {job.epochs > 0 && <progress max={job.epochs} value={Math.min(job.epochs, job.epochs_done)} aria-label="Epochs done" />}
    </>
  );
}

function guarantee(guaranteed: number, replicas: number): string {
  const borrowed = Math.max(0, replicas - guaranteed);
  return borrowed === 0 ? "all of them" : `${whole(guaranteed)}; ${whole(borrowed)} borrowed`;
}

function shareText(share: { milli: number; memory_mib: number }): string {
  const memory = share.memory_mib > 0 ? ` with ${whole(share.memory_mib / 1024)} GiB` : "";
  return `${whole(share.milli / 10)} % of one${memory}`;
}

function Fact({ name, text }: { name: string; text: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{text}</dd>
    </div>
  );
}

function Gone({ jobId, story }: { jobId: string; story: Story }) {
  const phase = story.explanation?.phase;
  if (phase) {
    return (
      <p>
        It is {phase.toLowerCase()} at this moment{story.explanation?.message ? ": " : "."}
        <Linked text={story.explanation?.message ?? ""} />
      </p>
    );
  }
  return story.problem ? null : <p class="soft">Job {jobId} neither runs nor waits at this moment.</p>;
}

function Why({ explanation, message }: { explanation: ExplanationView; message: string }) {
  const said = new Set([message, ""]);
  const lines = [explanation.message, explanation.obstacle, explanation.gpu, explanation.next_message, ...explanation.suggestions].filter(
    (line) => !said.has(line) && said.add(line),
  );
  if (explanation.last_failure) lines.push(`${counted(explanation.program_failures, "failed try").replace("trys", "tries")}; the last: ${explanation.last_failure}`);
  if (lines.length === 0) return null;
  return (
    <>
      <h3>Why</h3>
      <ul class="sentences">
        {lines.map((line) => (
          <li key={line}>
            <Linked text={line} />
          </li>
        ))}
      </ul>
    </>
  );
}

function Belief({ explanation }: { explanation: ExplanationView }) {
  const { estimate } = explanation;
  if (!estimate) return null;
  const give = (value: number | null, say: (value: number) => string) => (value === null ? "not known" : say(value));
  return (
    <>
      <h3>What voda believes</h3>
      <dl class="facts">
        <Fact name="Work left" text={`${give(estimate.remaining_s.value, span)} on one replica (${estimate.remaining_s.known_by})`} />
        <Fact
          name="Speedup"
          text={`${give(estimate.speedup.value, (value) => `${significant(value)}×`)} with all it asks for (${estimate.speedup.known_by})`}
        />
        <Fact name="A resize costs" text={`${give(estimate.resize_cost_s.value, span)} (${estimate.resize_cost_s.known_by})`} />
      </dl>
      {estimate.doubt && <p class="warn">{estimate.doubt}</p>}
    </>
  );
}

function Decisions({ explanation }: { explanation: ExplanationView }) {
  const [most, setMost] = useState(8);
  const decisions = [...explanation.decisions].reverse();
  if (decisions.length === 0) return null;
  const now = Date.now();
  return (
    <>
      <h3>Decisions</h3>
      <ol class="log">
        {decisions.slice(0, most).map((decision) => (
          <li key={decision.position}>
            <a href={`#at=${new Date(Date.parse(decision.decided_at) + 1).toISOString()}&job=${encodeURIComponent(explanation.job_id)}`}>
              {clock(Date.parse(decision.decided_at), now)}
            </a>
            <b>
              {decision.before.length} → {decision.after.length}
            </b>
            <span>
              <Linked text={decision.message} />
            </span>
          </li>
        ))}
      </ol>
      {decisions.length > most && (
        <button type="button" class="link" onClick={() => setMost(most + 50)}>
          {counted(decisions.length - most, "earlier decision")}
        </button>
      )}
    </>
  );
}

function Events({ events }: { events: readonly EventView[] }) {
  const [most, setMost] = useState(12);
  if (events.length === 0) return null;
  const now = Date.now();
  return (
    <>
      <h3>Events</h3>
      <ol class="log">
        {events.slice(0, most).map((event) => (
          <li key={event.position}>
            <time dateTime={event.recorded_at}>{clock(Date.parse(event.recorded_at), now)}</time>
            <span>
              <Linked text={event.message} />
            </span>
          </li>
        ))}
      </ol>
      {events.length > most && (
        <button type="button" class="link" onClick={() => setMost(most + 100)}>
          {counted(events.length - most, "earlier event")}
        </button>
      )}
    </>
  );
}
