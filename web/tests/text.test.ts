import assert from "node:assert/strict";
import { test } from "node:test";
import { matchesJob, matchesNode, parseFilter } from "../src/text/filter.ts";
import { counted, percent, relative, replicas, significant, span } from "../src/text/format.ts";
import { nodeMarks } from "../src/text/marks.ts";
import { pieces } from "../src/text/pieces.ts";
import { aJob, aNode } from "./builders.ts";

test("spans have two units at most", () => {
  const said: [number, string][] = [[0, "0 s"], [42, "42 s"], [125, "2 min 5 s"], [754, "13 min"], [3600, "1 h"], [11_100, "3 h 5 min"], [86_400 * 2 + 3600 * 4 + 60, "2 d 4 h"], [86_460, "1 d"], [Number.NaN, ""]];
  for (const [seconds, text] of said) assert.equal(span(seconds), text);
});

test("what was and what comes are told apart", () => {
  assert.equal(relative(0, 60_000), "1 min ago");
  assert.equal(relative(60_000, 0), "in 1 min");
  assert.equal(relative(200, 0), "now");
});

test("figures read as people write them", () => {
  assert.equal(counted(1, "GPU"), "1 GPU");
  assert.equal(counted(1234, "GPU"), "1,234 GPUs");
  assert.equal(percent(1, 3), "33 %");
  assert.equal(percent(1, 0), "");
  assert.equal(replicas({ replicas: 3, min_replicas: 2, max_replicas: 8 }), "3 of 2–8");
  assert.equal(replicas({ replicas: 3, min_replicas: 4, max_replicas: 4 }), "3 of 4");
  assert.equal(significant(0.000_012_3), "1.23e-5");
  assert.equal(significant(1234.567), "1,235");
});

test("a filter's words must all match; a word with a field means that field", () => {
  const job = aJob("bert-7", { user: "ann", pool: "a100", virtual_cluster: "nlp", labels: { team: "core" }, nodes: { "gpu-03": 2 } });
  const has = (text: string) => matchesJob(job, parseFilter(text));
  for (const text of ["", "bert", "user:ann pool:a100", "vc:nlp label:team=core", "node:gpu-03 BERT", "-user:bob", "team=core", "state:waiting"]) {
    assert.equal(has(text), true, text);
  }
  for (const text of ["user:bert", "bert user:bob", "-bert", "label:team=apps", "node:gpu-04"]) assert.equal(has(text), false, text);
});

test("a colon in a word that is no field, and a field without a word, mean no field", () => {
  assert.equal(matchesJob(aJob("a", { labels: { image: "train:1" } }), parseFilter("train:1")), true);
  assert.deepEqual(parseFilter("user:"), []);
});

test("a filter of a hundred thousand words is cut", () => {
  assert.equal(parseFilter("a ".repeat(100_000)).length, 20);
});

test("nodes match by name, pool and label, and by nothing that only jobs have", () => {
  const node = aNode("gpu-03", { pool: "a100", labels: { zone: "b" } });
  const has = (text: string) => matchesNode(node, parseFilter(text));
  assert.deepEqual([has("gpu"), has("pool:a100"), has("zone=b"), has("user:ann")], [true, true, true, false]);
});

test("what is unusual about a node is said, and nothing of one that is well", () => {
  assert.deepEqual(nodeMarks(aNode("n")), []);
  const texts = nodeMarks(aNode("n", { is_ready: false, is_schedulable: false, taints: ["a=b:NoSchedule"] })).map((mark) => mark.text);
  assert.deepEqual(texts, ["not ready", "cordoned: nothing starts here", "taint a=b:NoSchedule"]);
});

test("names in a sentence that are known are pieces of their own; the sentence stays whole", () => {
  const kindOf = (word: string) => (word === "bert-7" ? "job" : word === "gpu-03.example" ? "node" : "");
  const text = "waits behind bert-7, on gpu-03.example. <b>bert-77</b>";
  const found = pieces(text, kindOf);
  assert.equal(found.map((piece) => piece.text).join(""), text);
  assert.deepEqual(found.filter((piece) => piece.kind).map((piece) => piece.text), ["bert-7", "gpu-03.example"]);
});
