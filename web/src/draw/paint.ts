// Draws nodes and their GPUs on a canvas.
// Marks: a node that is not ready or silent has a red frame and is crossed out, a draining one an amber frame, a cordoned
// one a dashed amber frame, a tainted one a notch; borrowed GPUs are striped, those of others than voda's jobs hatched.

import type { MomentJobView, NodeView } from "../api/types.ts";
import { type Cell, type CellBook, FOREIGN, type Guarantees } from "./cells.ts";
import { jobColour } from "./colour.ts";
import { type Block, gridColumns, type Layout } from "./layout.ts";

export interface Theme {
  isNight: boolean;
  paper: string;
  free: string;
  frame: string;
  soft: string;
  ink: string;
  bad: string;
  warn: string;
  accent: string;
  foreign: string;
}

export interface Scene {
  layout: Layout;
  book: CellBook;
  jobs: ReadonlyMap<string, MomentJobView>;
  guarantees: Guarantees;
  /** Whether a job is drawn in full; the others are faint. */
  isLit: (jobId: string) => boolean;
  isNodeLit: (node: NodeView) => boolean;
  isFiltered: boolean;
  /** Whether any job may have borrowed GPUs. */
  isLent: boolean;
  job: string;
  node: string;
  hovered: string;
  theme: Theme;
}

const FAINT = 0.16;
/** From this size on, cells have the names of their jobs. */
const NAMED = 48;
const ON_COLOUR = "#0b0f15";
const FONT = "11px system-ui, sans-serif";

/** Draw the scene; after another one that differs in some nodes alone, no more than these. */
export function paint(context: CanvasRenderingContext2D, scene: Scene, before: Scene | null): void {
  const blocks = before === null ? null : changedBlocks(before, scene);
  if (blocks === null) context.clearRect(0, 0, context.canvas.width, context.canvas.height);
  for (const block of blocks ?? scene.layout.blocks) {
    if (blocks !== null) context.clearRect(block.x, block.y, block.width, block.height);
    paintNode(context, scene, block);
  }
}

/** Return the blocks that look otherwise than before; null: all may. */
export function changedBlocks(before: Scene, scene: Scene): Block[] | null {
  const [old, made] = [before.layout, scene.layout];
  const isSameView =
    before.theme === scene.theme && before.job === scene.job && before.node === scene.node && before.hovered === scene.hovered;
  // Of borrowed GPUs it is known how many there are, and not where: a change of one node moves those of others.
  if (!isSameView || before.isFiltered || scene.isFiltered || before.isLent || scene.isLent) return null;
  if (old.cell !== made.cell || old.height !== made.height || old.blocks.length !== made.blocks.length) return null;
  const changed: Block[] = [];
  for (const [index, block] of made.blocks.entries()) {
    const was = old.blocks[index];
    if (!was || was.node.name !== block.node.name || was.x !== block.x || was.y !== block.y || was.width !== block.width) return null;
    if (was.node !== block.node) changed.push(block);
  }
  return changed;
}

function paintNode(context: CanvasRenderingContext2D, scene: Scene, block: Block): void {
  const { layout, theme } = scene;
  const { node } = block;
  const isDown = !node.is_ready || node.silent_since !== null;
  const isNodeLit = scene.isNodeLit(node);
  context.globalAlpha = 1;
  paintBox(context, scene, block, isDown);
  if (layout.title > 0) paintTitle(context, scene, block, isDown);
  const columns = gridColumns(node.gpus);
  const step = layout.cell + layout.gap;
  scene.book.cells(node).forEach((cell, index) => {
    const x = block.x + layout.pad + (index % columns) * step;
    const y = block.y + layout.pad + layout.title + Math.floor(index / columns) * step;
    context.globalAlpha = isDown ? 0.45 : 1;
    paintCell(context, scene, cell, x, y, isNodeLit);
  });
  context.globalAlpha = 1;
  if (isDown) paintCross(context, block, theme.bad);
}

function paintBox(context: CanvasRenderingContext2D, scene: Scene, block: Block, isDown: boolean): void {
  const { theme, layout } = scene;
  const { node, x, y, width, height } = block;
  const isChosen = scene.node === node.name || scene.hovered === node.name;
  const isMarked = isDown || node.is_draining || !node.is_schedulable;
  // Frames of thousands of small nodes would be all that is seen.
  if (layout.cell < 10 && !isChosen && !isMarked) return;
  rounded(context, x + 0.5, y + 0.5, width - 1, height - 1, layout.cell >= 12 ? 6 : 2);
  context.lineWidth = isChosen ? 2 : isMarked ? 1.5 : 1;
  context.strokeStyle = isChosen ? theme.accent : isDown ? theme.bad : isMarked ? theme.warn : theme.frame;
  context.setLineDash(!node.is_schedulable && !node.is_draining && !isDown ? [3, 2] : []);
  context.stroke();
  context.setLineDash([]);
  if (node.taints.length > 0) paintNotch(context, block, theme.soft, layout.cell >= 12 ? 7 : 5);
}

function paintNotch(context: CanvasRenderingContext2D, block: Block, colour: string, side: number): void {
  const right = block.x + block.width - 1;
  context.fillStyle = colour;
  context.beginPath();
  context.moveTo(right - side, block.y + 1);
  context.lineTo(right, block.y + 1);
  context.lineTo(right, block.y + 1 + side);
  context.fill();
}

function paintTitle(context: CanvasRenderingContext2D, scene: Scene, block: Block, isDown: boolean): void {
  const { layout, theme } = scene;
  const { node } = block;
  context.font = FONT;
  context.textBaseline = "middle";
  context.fillStyle = isDown ? theme.bad : node.is_draining || !node.is_schedulable ? theme.warn : theme.soft;
  const room = block.width - 2 * layout.pad;
  context.fillText(clipped(context, node.name, room), block.x + layout.pad, block.y + layout.pad + 5, room);
}

/** Return the end of a name where it is too long: nodes differ in their ends. */
function clipped(context: CanvasRenderingContext2D, name: string, room: number): string {
  const most = Math.max(4, Math.floor(room / 5.6));
  if (name.length <= most || context.measureText(name).width <= room) return name;
  return `…${name.slice(1 - most)}`;
}

function paintCell(context: CanvasRenderingContext2D, scene: Scene, cell: Cell, x: number, y: number, isNodeLit: boolean): void {
  const { layout, theme } = scene;
  const size = layout.cell;
  if (cell === "") {
    if (!isNodeLit) context.globalAlpha *= 0.5;
    context.fillStyle = theme.free;
    square(context, x, y, size);
    return;
  }
  if (typeof cell !== "string") {
    context.fillStyle = theme.free;
    square(context, x, y, size);
    paintParts(context, scene, cell, x, y, isNodeLit);
    return;
  }
  if (cell === FOREIGN) {
    context.fillStyle = theme.free;
    square(context, x, y, size);
    stripes(context, x, y, size, theme.foreign);
    return;
  }
  if (!(isNodeLit || scene.isLit(cell))) context.globalAlpha *= FAINT;
  if (scene.job && scene.job !== cell) context.globalAlpha *= FAINT * 1.6;
  const isBorrowed = !scene.guarantees.take(cell);
  if (isBorrowed && size < 10) context.globalAlpha *= 0.55;
  context.fillStyle = jobColour(cell, theme.isNight);
  square(context, x, y, size);
  if (isBorrowed && size >= 10) stripes(context, x, y, size, theme.paper);
  if (size >= NAMED) paintName(context, scene.jobs.get(cell)?.name || cell, x, y, size);
  if (scene.job === cell && size >= 8) {
    context.strokeStyle = theme.ink;
    context.lineWidth = 1.5;
    context.strokeRect(x + 0.75, y + 0.75, size - 1.5, size - 1.5);
  }
}

function paintName(context: CanvasRenderingContext2D, name: string, x: number, y: number, size: number): void {
  context.font = FONT;
  context.textBaseline = "middle";
  context.fillStyle = ON_COLOUR;
  const room = size - 10;
  const most = Math.max(3, Math.floor(room / 6));
  context.fillText(name.length > most ? `${name.slice(0, most - 1)}…` : name, x + 5, y + size / 2, room);
}

/** Parts of one GPU stand on each other, as high as they are large. */
function paintParts(
  context: CanvasRenderingContext2D,
  scene: Scene,
  parts: Exclude<Cell, string>,
  x: number,
  y: number,
  isNodeLit: boolean,
): void {
  const size = scene.layout.cell;
  const before = context.globalAlpha;
  let bottom = y + size;
  for (const { owner, milli } of parts) {
    const high = Math.max(1, Math.min(bottom - y, (size * milli) / 1000));
    const isLit = (isNodeLit || scene.isLit(owner)) && (!scene.job || scene.job === owner);
    context.globalAlpha = isLit ? before : before * FAINT * 1.6;
    context.fillStyle = jobColour(owner, scene.theme.isNight);
    context.fillRect(x, bottom - high, size, Math.max(1, high - (size >= 12 ? 1 : 0)));
    bottom -= high;
  }
  context.globalAlpha = before;
}

function paintCross(context: CanvasRenderingContext2D, block: Block, colour: string): void {
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.globalAlpha = 0.8;
  context.beginPath();
  context.moveTo(block.x + 3, block.y + block.height - 3);
  context.lineTo(block.x + block.width - 3, block.y + 3);
  context.stroke();
  context.globalAlpha = 1;
}

function stripes(context: CanvasRenderingContext2D, x: number, y: number, size: number, colour: string): void {
  context.save();
  context.beginPath();
  context.rect(x, y, size, size);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = size >= 12 ? 2 : 1;
  const step = size >= 12 ? 6 : 3;
  context.beginPath();
  for (let offset = -size; offset < size; offset += step) {
    context.moveTo(x + offset, y + size);
    context.lineTo(x + offset + size, y);
  }
  context.stroke();
  context.restore();
}

function square(context: CanvasRenderingContext2D, x: number, y: number, size: number): void {
  if (size < 10) context.fillRect(x, y, size, size);
  else {
    rounded(context, x, y, size, size, size >= 20 ? 4 : 2);
    context.fill();
  }
}

function rounded(context: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, radius: number): void {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
}
