// The grid of nodes and their GPUs: one canvas, which the mouse, fingers and arrow keys can ask.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { NodeView } from "../api/types.ts";
import { type Cell, CellBook, FOREIGN, Guarantees } from "../draw/cells.ts";
import { type Block, hit, layout, neighbour } from "../draw/layout.ts";
import { paint, type Scene } from "../draw/paint.ts";
import { type Frame } from "../state/frame.ts";
import { store, useModel } from "../state/store.ts";
import { matchesJob, matchesNode, parseFilter } from "../text/filter.ts";
import { counted, whole } from "../text/format.ts";
import { nodeMarks } from "../text/marks.ts";
import { useSize } from "./size.ts";
import { useTheme } from "./theme.ts";

interface Hovered {
  block: Block;
  gpu: number;
  x: number;
  y: number;
}

const book = new CellBook();

export function Grid({ frame }: { frame: Frame }) {
  const outer = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const painted = useRef<Scene | null>(null);
  const size = useSize(outer);
  const theme = useTheme();
  const job = useModel((model) => model.job);
  const node = useModel((model) => model.node);
  const filter = useModel((model) => model.filter);
  const [hovered, setHovered] = useState<Hovered | null>(null);
  const [cursor, setCursor] = useState("");
  const isNarrow = size.width < 600;
  const made = useMemo(() => {
    book.keep(frame.nodes);
    const height = isNarrow ? Number.POSITIVE_INFINITY : size.height;
    return layout([...frame.nodes.values()], frame.pools, size.width, isNarrow ? Math.max(360, window.innerHeight * 0.6) : height);
  }, [frame.nodes, frame.pools, size.width, size.height]);
  const terms = useMemo(() => parseFilter(filter), [filter]);
  const lit = useMemo(
    () => new Set(terms.length === 0 ? [] : [...frame.jobs.values()].filter((each) => matchesJob(each, terms)).map((each) => each.job_id)),
    [terms, frame.jobs],
  );

  const isLent = useMemo(() => [...frame.jobs.values()].some((each) => each.guaranteed_replicas !== null), [frame.jobs]);
  const scene: Scene = {
    layout: made,
    book,
    jobs: frame.jobs,
    guarantees: new Guarantees(frame.jobs),
    isLit: (jobId) => terms.length === 0 || lit.has(jobId),
    isNodeLit: (each) => terms.length === 0 || matchesNode(each, terms),
    isFiltered: terms.length > 0,
    isLent,
    job,
    node,
    hovered: hovered?.block.node.name ?? cursor,
    theme,
  };

  useLayoutEffect(() => {
    const drawn = canvas.current;
    const context = drawn?.getContext("2d");
    if (!drawn || !context || size.width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(size.width * ratio), Math.round(made.height * ratio)];
    if (drawn.width !== width || drawn.height !== height) {
      drawn.width = width;
      drawn.height = height;
      drawn.style.height = `${made.height}px`;
      painted.current = null;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint(context, scene, painted.current);
    painted.current = scene;
  });

  const at = (event: MouseEvent): Hovered | null => {
    const found = hit(made, event.offsetX, event.offsetY);
    return found ? { ...found, x: event.offsetX, y: event.offsetY } : null;
  };
  const choose = (found: Hovered | null) => {
    if (!found) return store.dispatch({ type: "select" });
    const owner = ownerAt(found.block.node, found.gpu);
    if (owner && frame.jobs.has(owner)) store.dispatch({ type: "select", job: owner });
    else store.dispatch({ type: "select", node: found.block.node.name });
  };
  const press = (event: KeyboardEvent) => {
    if (event.key.startsWith("Arrow")) {
      event.preventDefault();
      const next = neighbour(made, cursor, event.key);
      if (!next) return;
      setCursor(next.node.name);
      outer.current?.scrollTo({ top: next.y - size.height / 2 });
    } else if ((event.key === "Enter" || event.key === " ") && cursor) {
      event.preventDefault();
      store.dispatch({ type: "select", node: cursor });
    }
  };
  const told = frame.nodes.get(cursor);

  useEffect(() => {
    if (hovered && !made.blocks.includes(hovered.block)) setHovered(null);
  }, [made]);

  return (
    <div class="grid" ref={outer}>
      <div class="canvas">
        {made.headings.map((heading) => (
          <PoolHeading key={heading.name} name={heading.name} frame={frame} y={heading.y} />
        ))}
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-roledescription="grid of nodes"
          aria-label={`${counted(frame.nodes.size, "node")} and their GPUs, coloured by job. Arrow keys move from node to node, Enter opens one.`}
          aria-describedby="grid-cursor"
          onMouseMove={(event) => setHovered(at(event))}
          onMouseLeave={() => setHovered(null)}
          onClick={(event) => choose(at(event))}
          onKeyDown={press}
          onBlur={() => setCursor("")}
        />
        {hovered && <Tip frame={frame} hovered={hovered} width={size.width} />}
      </div>
      <p id="grid-cursor" class="hidden" aria-live="polite">
        {told ? nodeSentence(told) : ""}
      </p>
    </div>
  );
}

function ownerAt(node: NodeView, gpu: number): string {
  const cell: Cell | undefined = book.cells(node)[gpu];
  if (cell === undefined) return "";
  return typeof cell === "string" ? cell : (cell[0]?.owner ?? "");
}

function nodeSentence(node: NodeView): string {
  const jobs = Object.keys(node.jobs);
  const used = `${node.name}: ${whole(node.used_gpus)} of ${counted(node.gpus, "GPU")} in use`;
  const by = jobs.length > 0 ? ` by ${jobs.join(", ")}` : "";
  return [used + by, ...nodeMarks(node).map((mark) => mark.text)].join("; ");
}

function PoolHeading({ name, frame, y }: { name: string; frame: Frame; y: number }) {
  const pool = frame.pools.get(name);
  const used = pool?.used_gpus ?? 0;
  const all = pool?.gpus ?? 0;
  return (
    <h3 class="pool" style={{ top: `${y}px` }}>
      <b>{name}</b>
      <meter min={0} max={Math.max(1, all)} value={used} aria-label={`GPUs in use in ${name}`} />
      <span>
        {whole(used)} of {counted(all, "GPU")}
      </span>
      {pool && <span class="wide">{pool.settings.policy}</span>}
    </h3>
  );
}

function Tip({ frame, hovered, width }: { frame: Frame; hovered: Hovered; width: number }) {
  const { node } = hovered.block;
  const cell = hovered.gpu >= 0 ? book.cells(node)[hovered.gpu] : undefined;
  const owners = cell === undefined ? [] : typeof cell === "string" ? [cell] : cell.map((part) => part.owner);
  const left = hovered.x > width - 260;
  const place = left ? { right: `${width - hovered.x + 12}px` } : { left: `${hovered.x + 14}px` };
  return (
    <div class="tip" style={{ ...place, top: `${hovered.y + 14}px` }}>
      <b>{node.name}</b>
      {hovered.gpu >= 0 && <span class="soft"> GPU {hovered.gpu}</span>}
      {owners.map((owner) => (
        <Owner key={owner} owner={owner} frame={frame} />
      ))}
      {nodeMarks(node).map((mark) => (
        <div key={mark.text} class={mark.kind}>
          {mark.text}
        </div>
      ))}
    </div>
  );
}

function Owner({ owner, frame }: { owner: string; frame: Frame }) {
  if (owner === "") return <div class="soft">free</div>;
  if (owner === FOREIGN) return <div class="soft">used by others than voda’s jobs</div>;
  const job = frame.jobs.get(owner);
  return (
    <div>
      {job?.name || owner}
      {job && (
        <span class="soft">
          {" "}
          {job.user}, {counted(job.gpus, "GPU")}
        </span>
      )}
    </div>
  );
}
