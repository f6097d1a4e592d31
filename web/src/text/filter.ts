// What the filter box means: words that a job or node has to match, all of them. Pure.
// `user:ann pool:a100 vc:nlp label:team=vision node:gpu-07 state:waiting bert`: a word without a field is part of a
// job's name or id, user, pool, virtual cluster or label.

import type { MomentJobView, NodeView } from "../api/types.ts";

export interface Term {
  /** Empty: anywhere. */
  field: string;
  text: string;
  /** Whether the term must not match: it began with `-`. */
  isNot: boolean;
}

export const FIELDS = ["user", "pool", "vc", "label", "name", "state", "node"] as const;
const MOST_TERMS = 20;

export function parseFilter(text: string): Term[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean).slice(0, MOST_TERMS);
  return words.map(term).filter((each) => each.text !== "");
}

function term(word: string): Term {
  const isNot = word.startsWith("-") && word.length > 1;
  const rest = isNot ? word.slice(1) : word;
  const colon = rest.indexOf(":");
  const field = colon > 0 ? rest.slice(0, colon) : "";
  if ((FIELDS as readonly string[]).includes(field)) return { field, text: rest.slice(colon + 1), isNot };
  return { field: "", text: rest, isNot };
}

/** What a filter looks at of a job. */
export type Filterable = Pick<MomentJobView, "job_id" | "name" | "user" | "pool" | "virtual_cluster" | "labels" | "state" | "nodes">;

export function matchesJob(job: Filterable, terms: readonly Term[]): boolean {
  return terms.every((each) => jobHas(job, each) !== each.isNot);
}

function jobHas(job: Filterable, { field, text }: Term): boolean {
  const has = (value: string) => value.toLowerCase().includes(text);
  const labelled = () => Object.entries(job.labels).some(([name, value]) => has(`${name}=${value}`));
  switch (field) {
    case "user":
      return has(job.user);
    case "pool":
      return has(job.pool);
    case "vc":
      return has(job.virtual_cluster);
    case "label":
      return labelled();
    case "name":
      return has(job.name) || has(job.job_id);
    case "state":
      return has(job.state);
    case "node":
      return Object.keys(job.nodes).some(has);
    default:
      return [job.name, job.job_id, job.user, job.pool, job.virtual_cluster].some(has) || labelled();
  }
}

/** Return whether a node itself is meant: by its name, pool or labels. */
export function matchesNode(node: NodeView, terms: readonly Term[]): boolean {
  return terms.every((each) => nodeHas(node, each) !== each.isNot);
}

function nodeHas(node: NodeView, { field, text }: Term): boolean {
  const has = (value: string) => value.toLowerCase().includes(text);
  const labelled = () => Object.entries(node.labels).some(([name, value]) => has(`${name}=${value}`));
  switch (field) {
    case "pool":
      return has(node.pool);
    case "node":
    case "name":
      return has(node.name);
    case "label":
      return labelled();
    case "":
      return has(node.name) || has(node.pool) || labelled();
    default:
      return false;
  }
}
