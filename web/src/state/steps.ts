// Finds the next or previous decision, resize or failure in the log, a page of events at a time.

import { ask } from "../api/client.ts";
import type { EventList, EventView } from "../api/types.ts";

export type StepKind = "decision" | "resize" | "failure";

const TYPES: Record<StepKind, readonly string[]> = {
  decision: ["plan.adopted"],
  resize: ["plan.adopted"],
  failure: ["job.failed", "program.failed", "node.left"],
};
const PAGE = 200;
const MOST_PAGES = 60;

/** Return a page of events of some types: those behind a position, or those before one, newest first. */
export type FetchEvents = (types: readonly string[], from: { after: number } | { before: number }) => Promise<EventList>;

export const fetchEvents: FetchEvents = (types, from) =>
  ask<EventList>("/events", { query: { type: types, limit: PAGE, ...from } });

/**
 * Return the moment just after the next (1) or previous (-1) event of a kind, milliseconds; null: there is none, or none
 * near enough.
 */
export async function findStep(
  kind: StepKind,
  direction: 1 | -1,
  shown: { position: number; now: number; end: number },
  fetch: FetchEvents = fetchEvents,
): Promise<number | null> {
  // Several events may share the millisecond that is shown.
  const isBeyond = (event: EventView) => direction > 0 || momentOf(event) < shown.now;
  let position = direction > 0 ? shown.position : shown.position + 1;
  for (let count = 0; count < MOST_PAGES && (direction > 0 ? position < shown.end : position > 1); count += 1) {
    const page = await fetch(TYPES[kind], direction > 0 ? { after: position } : { before: position });
    const found = page.items.find((event) => isOf(kind, event) && isBeyond(event));
    if (found) return momentOf(found);
    if (direction > 0 ? page.last_position <= position : page.last_position >= position) return null;
    position = page.last_position;
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
