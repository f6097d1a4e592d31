import assert from "node:assert/strict";
import { test } from "node:test";
import type { NodeView } from "../src/api/types.ts";
import { jobColour, rgb } from "../src/draw/colour.ts";
import { gridColumns, hit, layout, neighbour } from "../src/draw/layout.ts";
import { replicaSeries, reportSeries } from "../src/draw/series.ts";
import { changedBlocks, type Scene } from "../src/draw/paint.ts";
import { completed } from "../src/draw/strip.ts";
import { aNode } from "./builders.ts";

const nodes = (count: number, gpus: number): NodeView[] => Array.from({ length: count }, (_, index) => aNode(`n${index}`, { gpus }));

test("a job's colour is a function of its id, another by night, and neighbours by name differ", () => {
  assert.equal(jobColour("bert-1", false), jobColour("bert-1", false));
  assert.notEqual(jobColour("bert-1", false), jobColour("bert-1", true));
  const colours = new Set(Array.from({ length: 40 }, (_, index) => jobColour(`bert-${index}`, false)));
  assert.ok(colours.size >= 25, `${colours.size} colours`);
});

test("OKLCH becomes sRGB: white, black, and a red as published", () => {
  assert.equal(rgb(1, 0, 0), "#ffffff");
  assert.equal(rgb(0, 0, 0), "#000000");
  assert.equal(rgb(0.628, 0.2577, (29.23 * Math.PI) / 180), "#ff0000");
});

test("a thousand nodes of eight GPUs fit a screen, and a few get large cells", () => {
  const many = layout(nodes(1000, 8), new Map(), 1000, 600);
  assert.ok(many.height <= 600 && many.cell >= 5, `${many.cell} px, ${many.height} high`);
  assert.ok(layout(nodes(2, 8), new Map(), 1000, 600).cell >= 60);
});

test("no two nodes overlap, and none is wider than the room", () => {
  const made = layout([...nodes(30, 8), ...nodes(20, 4).map((node) => ({ ...node, name: `x${node.name}`, pool: "b" }))], new Map(), 700, 500);
  for (const [index, a] of made.blocks.entries()) {
    assert.ok(a.x + a.width <= 700);
    for (const b of made.blocks.slice(index + 1)) {
      const apart = a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
      assert.ok(apart, `${a.node.name} and ${b.node.name}`);
    }
  }
});

test("a point is found in its node and GPU, and beside all of them nothing", () => {
  const made = layout(nodes(3, 8), new Map(), 1000, 400);
  const block = made.blocks[1]!;
  const step = made.cell + made.gap;
  const found = hit(made, block.x + made.pad + 1.5 * step, block.y + made.pad + made.title + 1.5 * step);
  assert.equal(found?.block.node.name, "n1");
  assert.equal(found?.gpu, gridColumns(8) + 1);
  assert.equal(hit(made, block.x + 2, block.y + 2)?.gpu, -1);
  assert.equal(hit(made, 999, 399), null);
});

test("arrow keys lead to the nodes beside, above and below, and stay at the edges", () => {
  const made = layout(nodes(40, 8), new Map(), 700, 400);
  const second = made.blocks.find((each) => each.y > made.blocks[0]!.y)!;
  assert.equal(neighbour(made, "", "ArrowRight")?.node.name, "n0");
  assert.equal(neighbour(made, "n0", "ArrowRight")?.node.name, "n1");
  assert.equal(neighbour(made, "n0", "ArrowDown")?.node.name, second.node.name);
  assert.equal(neighbour(made, second.node.name, "ArrowUp")?.node.name, "n0");
  assert.equal(neighbour(made, "n0", "ArrowUp")?.node.name, "n0");
});

test("nodes are in the order of their numbers", () => {
  const made = layout([aNode("n10"), aNode("n9")], new Map(), 700, 400);
  assert.deepEqual(made.blocks.map((each) => each.node.name), ["n9", "n10"]);
});

test("a count that is spread over buckets is marked once, where it is complete", () => {
  assert.deepEqual(completed([0, 0.5, 0.5, 0, 1, 0.333, 0.333, 0.333]), [2, 4, 7]);
});

test("replicas go on to the moment that is shown; reports leave out what is not timed", () => {
  const decision = { position: 1, plan: 1, policy: "", before: [], message: "", cause: "" };
  const series = replicaSeries([{ ...decision, decided_at: "1970-01-01T00:00:10Z", after: ["n", "n"] }], 30_000);
  assert.deepEqual([series.times, series.values], [[10, 30], [2, 2]]);
  const report = (second: number, epoch_s: number | null) => ({
    epochs_done: second,
    reported_at: new Date(second * 1000).toISOString(),
    workers: 1,
    epoch_s,
    metrics: { loss: 1 / second },
  });
  const [epochs, times, loss] = reportSeries([report(1, null), report(2, 7), report(2, 8)]);
  assert.deepEqual(epochs?.values, [1, 2]);
  assert.deepEqual([times?.times, times?.values], [[2], [7]]);
  assert.equal(loss?.name, "loss");
});

test("after a change of one node that one alone is drawn again, and all where the view is another", () => {
  const all = nodes(20, 8);
  const scene = (shown: NodeView[], more: object = {}) =>
    ({ layout: layout(shown, new Map(), 700, 400), isFiltered: false, isLent: false, job: "", node: "", hovered: "", ...more }) as Scene;
  const changed = all.map((node) => (node.name === "n3" ? { ...node, jobs: { a: 1 } } : node));
  assert.deepEqual(changedBlocks(scene(all), scene(changed))?.map((block) => block.node.name), ["n3"]);
  assert.deepEqual(changedBlocks(scene(all), scene(all)), []);
  assert.equal(changedBlocks(scene(all), scene(changed, { job: "a" })), null);
  assert.equal(changedBlocks(scene(all), scene(changed, { isLent: true })), null);
  assert.equal(changedBlocks(scene(all), scene(all.slice(1))), null);
});
