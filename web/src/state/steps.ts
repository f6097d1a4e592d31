// Finds the next or previous decision, resize or failure in the log, a page of events at a time.

import { ask } from "../api/client.ts";
import type { EventList, EventView } from "../api/types.ts";

export type StepKind = "decision" | "resize" | "failure";

const TYPES: Record<StepKind, readonly string[]> = {
  decision: ["plan.adopted"],
  resize: ["plan.adopted"],
  failure: ["job.failed", "program.failed", "node.left"],
};
const PAGE = 500;
const MOST_PAGES = 60;

/** Return the events of a kind behind one position up to another, as far as one page goes. */
export type FetchEvents = (types: readonly string[], after: number, until: number) => Promise<EventList>;

export const fetchEvents: FetchEvents = (types, after, until) =>
  ask<EventList>("/events", { query: { type: types, after, until, limit: PAGE } });

/**
 * Return the moment just after the next (1) or previous (-1) event of a kind, milliseconds; null: there is none, or none
 * near enough.
 */
export async function findStep(
  kind: StepKind,
  direction: 1 | -1,
  from: { position: number; now: number; end: number },
  fetch: FetchEvents = fetchEvents,
): Promise<number | null> {
  return direction > 0 ? next(kind, from, fetch) : previous(kind, from, fetch);
}

async function next(kind: StepKind, from: { position: number; end: number }, fetch: FetchEvents): Promise<number | null> {
  let after = from.position;
  for (let count = 0; count < MOST_PAGES && after < from.end; count += 1) {
    const page = await fetch(TYPES[kind], after, from.end);
    const found = page.items.find((event) => isOf(kind, event));
    if (found) return momentOf(found);
    if (page.last_position <= after) return null;
    after = page.last_position;
  }
  return null;
}

/** Look back in windows that double: what is dense is near, and what is rare needs few pages. */
async function previous(kind: StepKind, from: { position: number; now: number }, fetch: FetchEvents): Promise<number | null> {
  let until = from.position;
  let size = PAGE;
  for (let count = 0; count < MOST_PAGES && until > 0; ) {
    const begin = Math.max(0, until - size);
    let last: number | null = null;
    for (let after = begin; after < until && count < MOST_PAGES; count += 1) {
      const page = await fetch(TYPES[kind], after, until);
      const earlier = page.items.filter((event) => isOf(kind, event) && momentOf(event) < from.now);
      last = earlier.length > 0 ? momentOf(earlier[earlier.length - 1] as EventView) : last;
      if (page.last_position <= after) break;
      after = page.last_position;
    }
    if (last !== null) return last;
    until = begin;
    size *= 2;
  }
  return null;
}

/** A moment has whole milliseconds, an event microseconds: the millisecond behind it is the first that has it. */
function momentOf(event: EventView): number {
  return Date.parse(event.recorded_at) + 1;
}

function isOf(kind: StepKind, event: EventView): boolean {
  if (kind !== "resize") return true;
  const reasons = (event.data["reasons"] ?? {}) as Record<string, { kind?: string }>;
  return Object.values(reasons).some((reason) => reason.kind === "resized");
}
