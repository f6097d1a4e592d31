// What an empty cluster shows: the commands that fill it.

import type { Frame } from "../state/frame.ts";

const COMMANDS: readonly [string, string][] = [
  ["voda submit --workers 1-4 -- python train.py", "runs your program with one to four workers; the job is called train"],
  ["voda scale train 2", "gives it two; it goes on from its checkpoint"],
  ["voda explain train", "says why it has what it has"],
];

export function Empty({ frame }: { frame: Frame }) {
  return (
    <section class="empty" aria-label="No jobs">
      <h2>{frame.nodes.size > 0 ? "All is free: no job runs or waits." : "No node with GPUs is known yet, and no job."}</h2>
      <ol>
        {COMMANDS.map(([command, meaning]) => (
          <li key={command}>
            <code>{command}</code>
            <span class="soft">{meaning}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}
