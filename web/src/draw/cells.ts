// Which GPU of a node is drawn for whom. Pure.
// Rule: a job keeps its cells from frame to frame. Where it is known which GPU a worker has, that one is drawn; else the
// cells are given in order, because a node says only how many GPUs a job holds.

import type { MomentJobView, NodeView } from "../api/types.ts";

/** Thousandths of one GPU that somebody has. */
export interface Part {
  /** Of the job, or of the pod where it is none of a job. */
  owner: string;
  milli: number;
}

/** Job id; empty: free; FOREIGN: of others than voda's jobs; parts of one GPU. */
export type Cell = string | readonly Part[];

export const FOREIGN = "\u0000foreign";

/** Return who has each GPU of a node, given who had it in the frame before. */
export function cellsOf(node: NodeView, before: readonly Cell[] = []): Cell[] {
  const cells: Cell[] = Array.from({ length: Math.max(0, node.gpus) }, () => "");
  const left = new Map<string, number>(Object.entries(node.jobs));
  if (node.foreign_gpus > 0) left.set(FOREIGN, node.foreign_gpus);
  const give = (index: number, owner: string) => {
    cells[index] = owner;
    left.set(owner, (left.get(owner) ?? 0) - 1);
  };
  for (const device of node.devices) {
    if (device.index < 0 || device.index >= cells.length) continue;
    if (device.job) give(device.index, device.job);
    else if (device.shares.length > 0) {
      cells[device.index] = device.shares.map((share) => ({ owner: ownerOf(share.pod), milli: share.milli }));
    }
  }
  before.forEach((owner, index) => {
    if (typeof owner === "string" && owner !== "" && cells[index] === "" && (left.get(owner) ?? 0) >= 1) give(index, owner);
  });
  fill(cells, left);
  return cells;
}

/** Give what is left, jobs from the front in the order of their ids, others from the back. */
function fill(cells: Cell[], left: ReadonlyMap<string, number>): void {
  const owners = [...left].sort(([a], [b]) => (a < b ? -1 : 1));
  for (const [owner, count] of owners) {
    const isForeign = owner === FOREIGN;
    for (let rest = Math.floor(count + 1e-9); rest > 0; rest -= 1) {
      const free = isForeign ? cells.lastIndexOf("") : cells.indexOf("");
      if (free < 0) return;
      cells[free] = owner;
    }
  }
}

/** Return the job's id that a pod of this machine is named by; else the pod. */
function ownerOf(pod: string): string {
  return pod.slice(pod.indexOf("/") + 1) || pod;
}

/** Remembers who had which GPU, frame by frame. */
export class CellBook {
  private readonly known = new Map<string, { node: NodeView; cells: Cell[] }>();

  cells(node: NodeView): readonly Cell[] {
    const before = this.known.get(node.name);
    if (before?.node === node) return before.cells;
    const cells = cellsOf(node, before?.cells);
    this.known.set(node.name, { node, cells });
    return cells;
  }

  /** Forget nodes that are no more. */
  keep(nodes: ReadonlyMap<string, NodeView>): void {
    for (const name of this.known.keys()) if (!nodes.has(name)) this.known.delete(name);
  }
}

/** Parts a job's cells into guaranteed ones, which come first, and borrowed ones: of a job it is known how many there are. */
export class Guarantees {
  private readonly taken = new Map<string, number>();

  constructor(private readonly jobs: ReadonlyMap<string, MomentJobView>) {}

  /** Count one more cell of a job, and return whether its virtual cluster guarantees it. */
  take(jobId: string): boolean {
    const job = this.jobs.get(jobId);
    if (!job || job.guaranteed_replicas === null) return true;
    const count = (this.taken.get(jobId) ?? 0) + 1;
    this.taken.set(jobId, count);
    return count <= job.guaranteed_replicas * job.gpus_per_replica;
  }
}
