// Where each node is drawn: pools below each other, nodes in rows, cells as large as the room allows. Pure.

import type { NodeView, PoolView } from "../api/types.ts";
import { byName } from "../text/order.ts";

export interface Block {
  node: NodeView;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Heading {
  pool: PoolView | undefined;
  name: string;
  y: number;
}

export interface Layout {
  /** Side of a GPU's cell, CSS pixels. */
  cell: number;
  gap: number;
  /** Room of a node around its cells. */
  pad: number;
  /** Of the line with the node's name above its cells; 0: too small for one. */
  title: number;
  headings: Heading[];
  blocks: Block[];
  height: number;
}

export const HEADING = 30;
const SIZES = [88, 76, 66, 56, 48, 40, 34, 30, 27, 24, 22, 20, 18, 16, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4] as const;
/** From this size of cells on, nodes have their names above them. */
const TITLED = 14;

export function gridColumns(gpus: number): number {
  if (gpus <= 4) return Math.max(1, gpus);
  return gpus % 4 === 0 && gpus <= 16 ? Math.max(4, gpus / 2) : Math.min(8, gpus);
}

/** Return the layout with the largest cells with which all fits into the height; the smallest cells may go beyond it. */
export function layout(
  nodes: readonly NodeView[],
  pools: ReadonlyMap<string, PoolView>,
  width: number,
  height: number,
): Layout {
  const groups = grouped(nodes);
  let made = arranged(groups, pools, width, SIZES[SIZES.length - 1] ?? 4);
  for (const size of SIZES) {
    made = arranged(groups, pools, width, size);
    if (made.height <= height) break;
  }
  return made;
}

function grouped(nodes: readonly NodeView[]): [string, NodeView[]][] {
  const groups = new Map<string, NodeView[]>();
  for (const node of nodes) {
    const group = groups.get(node.pool);
    if (group) group.push(node);
    else groups.set(node.pool, [node]);
  }
  for (const group of groups.values()) group.sort(byName);
  return [...groups].sort(([a], [b]) => byName({ name: a }, { name: b }));
}

function arranged(
  groups: readonly [string, NodeView[]][],
  pools: ReadonlyMap<string, PoolView>,
  width: number,
  cell: number,
): Layout {
  const gap = cell >= 20 ? 3 : cell >= 10 ? 2 : 1;
  const pad = cell >= 20 ? 8 : cell >= 14 ? 6 : cell >= 10 ? 4 : 1;
  const title = cell >= TITLED ? 16 : 0;
  const between = cell >= 20 ? 10 : cell >= 10 ? 6 : 2;
  const made: Layout = { cell, gap, pad, title, headings: [], blocks: [], height: 0 };
  let y = 0;
  for (const [name, nodes] of groups) {
    made.headings.push({ pool: pools.get(name), name, y });
    y += HEADING;
    let x = 0;
    let row = 0;
    for (const node of nodes) {
      const columns = gridColumns(node.gpus);
      const rows = Math.max(1, Math.ceil(node.gpus / columns));
      const least = title ? 92 : 0;
      const wide = Math.max(least, columns * (cell + gap) - gap + 2 * pad);
      const high = rows * (cell + gap) - gap + 2 * pad + title;
      if (x > 0 && x + wide > width) {
        x = 0;
        y += row + between;
        row = 0;
      }
      made.blocks.push({ node, x, y, width: wide, height: high });
      x += wide + between;
      row = Math.max(row, high);
    }
    y += row + between + 8;
  }
  made.height = y;
  return made;
}

/** Return the block at a point, and which of its GPUs is there (-1: none). */
export function hit(made: Layout, x: number, y: number): { block: Block; gpu: number } | null {
  const block = made.blocks.find((each) => x >= each.x && x < each.x + each.width && y >= each.y && y < each.y + each.height);
  if (!block) return null;
  const step = made.cell + made.gap;
  const columns = gridColumns(block.node.gpus);
  const column = Math.floor((x - block.x - made.pad) / step);
  const row = Math.floor((y - block.y - made.pad - made.title) / step);
  const gpu = row * columns + column;
  const isCell = column >= 0 && column < columns && row >= 0 && gpu < block.node.gpus;
  return { block, gpu: isCell ? gpu : -1 };
}

/** Return the block that lies next to another in a direction, as arrow keys mean it. */
export function neighbour(made: Layout, name: string, key: string): Block | null {
  const index = made.blocks.findIndex((each) => each.node.name === name);
  const from = made.blocks[index];
  if (!from) return made.blocks[0] ?? null;
  if (key === "ArrowRight") return made.blocks[index + 1] ?? from;
  if (key === "ArrowLeft") return made.blocks[index - 1] ?? from;
  const sign = key === "ArrowDown" ? 1 : -1;
  const row = made.blocks.filter((each) => (each.y - from.y) * sign > 0);
  const nearest = Math.min(...row.map((each) => Math.abs(each.y - from.y)));
  const inRow = row.filter((each) => Math.abs(each.y - from.y) === nearest);
  return inRow.sort((a, b) => Math.abs(a.x - from.x) - Math.abs(b.x - from.x))[0] ?? from;
}
