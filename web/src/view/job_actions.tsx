// What can be done to a job, each with a question first; nothing for those who may not.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask, type Call, jobPath } from "../api/client.ts";
import type { MomentJobView } from "../api/types.ts";
import { mayChange } from "../state/model.ts";
import { useModel } from "../state/store.ts";

interface Question {
  verb: string;
  /** What follows, in a sentence. */
  text: string;
  field?: { label: string; value: string; pattern: string; hint: string };
  isSevere?: boolean;
  call: (value: string) => [string, Call];
}

export function JobActions({ job }: { job: MomentJobView }) {
  const caller = useModel((model) => model.caller);
  const mode = useModel((model) => model.mode);
  const [question, setQuestion] = useState<Question | null>(null);
  if (!mayChange(caller, job.user) || job.state === "Canceling") return null;
  if (mode !== "live") return <p class="soft">Go back to live to change this job.</p>;
  return (
    <div class="actions" role="group" aria-label="Change the job">
      {questionsOf(job).map((each) => (
        <button key={each.verb} type="button" class={each.isSevere ? "severe" : "quiet"} onClick={() => setQuestion(each)}>
          {each.verb}
        </button>
      ))}
      {question && <Dialog job={job} question={question} close={() => setQuestion(null)} />}
    </div>
  );
}

function questionsOf(job: MomentJobView): Question[] {
  const path = (rest = "") => jobPath(job.job_id, rest);
  const name = job.name || job.job_id;
  const sizes = job.min_replicas === job.max_replicas ? `${job.max_replicas}` : `${job.min_replicas}-${job.max_replicas}`;
  const isHalted = job.state === "Halted" || job.state === "Halting";
  return [
    {
      verb: "Scale",
      text: `With how many replicas may ${name} run? It begins anew from its last checkpoint where its size changes.`,
      field: { label: "Replicas", value: sizes, pattern: "\\d+(-\\d+)?", hint: "a number such as 4, or bounds such as 1-4" },
      call: (value) => [path(), { method: "PATCH", body: bounds(value) }],
    },
    {
      verb: "Priority",
      text: `Jobs of higher priority go first. Which priority has ${name}?`,
      field: { label: "Priority", value: String(job.priority), pattern: "-?\\d+", hint: "a whole number" },
      call: (value) => [path(), { method: "PATCH", body: { priority: Number(value) } }],
    },
    isHalted
      ? { verb: "Resume", text: `Plans may give ${name} workers again.`, call: () => [path("/resume"), { method: "POST" }] }
      : {
          verb: "Halt",
          text: `${name} gives its GPUs back, and gets no workers until it is resumed.`,
          call: () => [path("/halt"), { method: "POST" }],
        },
    {
      verb: "Cancel",
      text: `${name} ends for good, and does not go on later.`,
      isSevere: true,
      call: () => [path(), { method: "DELETE" }],
    },
  ];
}

function bounds(value: string): Record<string, number> {
  const [least, most] = value.split("-").map(Number);
  const high = most ?? least ?? 1;
  return { min_replicas: least ?? 1, max_replicas: high, requested_replicas: high };
}

function Dialog({ job, question, close }: { job: MomentJobView; question: Question; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [value, setValue] = useState(question.field?.value ?? "");
  const [problem, setProblem] = useState("");
  const [isAsking, setAsking] = useState(false);
  useEffect(() => dialog.current?.showModal(), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    const [path, call] = question.call(value.trim());
    setAsking(true);
    try {
      await ask(path, call);
      close();
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
      setAsking(false);
    }
  };
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="question">
      <form onSubmit={submit}>
        <h2 id="question">
          {question.verb} {job.name || job.job_id}?
        </h2>
        <p>{question.text}</p>
        {question.field && (
          <label>
            {question.field.label} <span class="soft">({question.field.hint})</span>
            <input value={value} required pattern={question.field.pattern} autocomplete="off" onInput={(event) => setValue(event.currentTarget.value)} />
          </label>
        )}
        {problem && (
          <p class="bad" role="alert">
            {problem}
          </p>
        )}
        <div class="answers">
          <button type="button" class="quiet" onClick={close}>
            No
          </button>
          <button type="submit" class={question.isSevere ? "severe" : ""} disabled={isAsking}>
            {question.verb}
          </button>
        </div>
      </form>
    </dialog>
  );
}
