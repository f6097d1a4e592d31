// What is chosen: a job or a node, in a panel that Escape closes.

import { type ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { NodeView } from "../api/types.ts";
import type { Frame } from "../state/frame.ts";
import { store } from "../state/store.ts";
import { counted, whole } from "../text/format.ts";
import { nodeMarks } from "../text/marks.ts";
import { Swatch } from "./parts.tsx";

interface Props {
  title: ComponentChildren;
  label: string;
  children: ComponentChildren;
}

export function Panel({ title, label, children }: Props) {
  const heading = useRef<HTMLHeadingElement>(null);
  // Whoever opens it with the keyboard reads on here, and comes back to where they were.
  useEffect(() => {
    const before = document.activeElement;
    heading.current?.focus({ preventScroll: true });
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
  return (
    <aside class="panel" aria-label={label}>
      <div class="panel-head">
        <h2 ref={heading} tabIndex={-1}>
          {title}
        </h2>
        <button type="button" class="quiet" aria-label="Close" title="Close (Escape)" onClick={() => store.dispatch({ type: "select" })}>
          ✕
        </button>
      </div>
      <div class="panel-body">{children}</div>
    </aside>
  );
}

export function NodePanel({ name, frame }: { name: string; frame: Frame }) {
  const node = frame.nodes.get(name);
  return (
    <Panel title={name} label={`Node ${name}`}>
      {node ? <Node node={node} frame={frame} /> : <p>There is no node of this name at this moment.</p>}
    </Panel>
  );
}

function Node({ node, frame }: { node: NodeView; frame: Frame }) {
  const marks = nodeMarks(node);
  const jobs = Object.entries(node.jobs).sort(([, a], [, b]) => b - a);
  return (
    <>
      <p>
        {whole(node.used_gpus)} of {counted(node.gpus, "GPU")} in use, pool {node.pool}
        {node.foreign_gpus > 0 ? `; ${whole(node.foreign_gpus)} by others than voda’s jobs` : ""}
      </p>
      {marks.length === 0 && <p class="soft">It is ready.</p>}
      {marks.map((mark) => (
        <p key={mark.text} class={mark.kind}>
          {mark.text}
        </p>
      ))}
      <h3>Jobs here</h3>
      {jobs.length === 0 && <p class="soft">None.</p>}
      <ul class="plain">
        {jobs.map(([job, gpus]) => (
          <li key={job}>
            <button type="button" class="row flat" onClick={() => store.dispatch({ type: "select", job })}>
              <Swatch job={job} isEmpty={false} />
              <span class="main">{frame.jobs.get(job)?.name ?? job}</span>
              <span class="figure">{counted(gpus, "GPU")}</span>
            </button>
          </li>
        ))}
      </ul>
      {Object.keys(node.labels).length > 0 && <h3>Labels</h3>}
      <dl class="facts">
        {Object.entries(node.labels).map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}
