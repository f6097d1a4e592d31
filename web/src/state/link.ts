// What the address says behind its `#`: which moment, job, node and filter, so that a link to them can be shared. Pure.

import type { Model } from "./model.ts";

export interface Link {
  /** Milliseconds; null: live. */
  at: number | null;
  job: string;
  node: string;
  filter: string;
  /** A code that signs in once; `voda dashboard` prints it. */
  login: string;
}

export function parseLink(hash: string): Link {
  const found = new URLSearchParams(hash.replace(/^#/, ""));
  const at = Date.parse(found.get("at") ?? "");
  return {
    at: Number.isNaN(at) ? null : at,
    job: found.get("job") ?? "",
    node: found.get("node") ?? "",
    filter: found.get("filter") ?? "",
    login: found.get("login") ?? "",
  };
}

/** Return the hash of what is shown; empty: live, and nothing chosen. */
export function linkOf(model: Pick<Model, "mode" | "now" | "job" | "node" | "filter">): string {
  const parts: string[] = [];
  if (model.mode !== "live" && model.now > 0) parts.push(`at=${new Date(model.now).toISOString()}`);
  for (const name of ["job", "node", "filter"] as const) {
    if (model[name]) parts.push(`${name}=${encodeURIComponent(model[name])}`);
  }
  return parts.length > 0 ? `#${parts.join("&")}` : "";
}
