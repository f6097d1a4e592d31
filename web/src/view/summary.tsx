// The cluster in four figures.

import { type Frame, totals } from "../state/frame.ts";
import { percent, whole } from "../text/format.ts";

export function Summary({ frame }: { frame: Frame }) {
  const sum = totals(frame);
  return (
    <section class="summary" aria-label="Summary">
      <div class="tile gpus">
        <b>{whole(sum.used)}</b>
        <span>
          of {whole(sum.gpus)} GPUs in use <em>{percent(sum.used, sum.gpus)}</em>
        </span>
        <meter min={0} max={Math.max(1, sum.gpus)} value={sum.used} aria-label="GPUs in use" />
      </div>
      <div class="tile">
        <b>{whole(sum.running)}</b>
        <span>running</span>
      </div>
      <div class={`tile${sum.waiting > 0 ? " waits" : ""}`}>
        <b>{whole(sum.waiting)}</b>
        <span>waiting</span>
      </div>
      <div class="tile">
        <b>{whole(sum.nodes)}</b>
        <span>{sum.nodes === 1 ? "node" : "nodes"}</span>
        {sum.troubled > 0 && <em class="warn">{whole(sum.troubled)} in trouble</em>}
      </div>
    </section>
  );
}
