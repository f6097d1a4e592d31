// What is unusual about a node, in words. Pure.

import type { NodeView } from "../api/types.ts";

export interface Mark {
  kind: "bad" | "warn" | "soft";
  text: string;
}

export function nodeMarks(node: NodeView): Mark[] {
  const marks: Mark[] = [];
  if (!node.is_ready) marks.push({ kind: "bad", text: "not ready" });
  if (node.silent_since !== null) marks.push({ kind: "bad", text: "does not answer, or says fewer GPUs than its workers hold" });
  if (node.is_draining) marks.push({ kind: "warn", text: node.drain_message || "draining: its workers go elsewhere" });
  else if (!node.is_schedulable) marks.push({ kind: "warn", text: "cordoned: nothing starts here" });
  for (const taint of node.taints) marks.push({ kind: "soft", text: `taint ${taint}` });
  return marks;
}
