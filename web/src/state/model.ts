// All that the page knows, and how it changes: one record, one function. Pure.

import type { CallerView, ChangesView, TimelineView } from "../api/types.ts";
import { after, type Frame } from "./frame.ts";

/** live: what happens now; past: one moment; playing: from a past moment on. */
export type Mode = "live" | "past" | "playing";

export interface Connection {
  state: "connecting" | "open" | "lost";
  /** When the server was heard last; milliseconds of this machine's clock. 0: never. */
  heardAt: number;
  message: string;
}

export interface Model {
  access: "unknown" | "refused" | "granted";
  /** Why a token is asked for. */
  refusal: string;
  caller: CallerView | null;
  mode: Mode;
  /** Null until the first answer. */
  frame: Frame | null;
  /** The moment that is shown, milliseconds; while live, now by the server's clock. */
  now: number;
  /** Whether a moment was asked for and is not here yet. */
  isSeeking: boolean;
  speed: number;
  connection: Connection;
  timeline: TimelineView | null;
  /** How long a piece of the log the strip shows, in seconds; 0: all of it. */
  windowS: number;
  job: string;
  node: string;
  /** Whether another policy is tried beside what is chosen. */
  whatIf: boolean;
  filter: string;
  /** A sentence about what went wrong; empty: nothing. */
  notice: string;
}

export const SPEEDS = [1, 10, 60, 100, 300, 1000] as const;

export const FIRST: Model = {
  access: "unknown",
  refusal: "",
  caller: null,
  mode: "live",
  frame: null,
  now: 0,
  isSeeking: false,
  speed: 60,
  connection: { state: "connecting", heardAt: 0, message: "" },
  timeline: null,
  windowS: 0,
  job: "",
  node: "",
  whatIf: false,
  filter: "",
  notice: "",
};

export type Action =
  | { type: "granted"; caller: CallerView }
  | { type: "refused"; message: string }
  | { type: "frame"; frame: Frame; mode: Mode }
  | { type: "changes"; changes: ChangesView }
  | { type: "seeking"; at: number }
  | { type: "time"; now: number }
  | { type: "mode"; mode: Mode }
  | { type: "speed"; speed: number }
  | { type: "connection"; connection: Partial<Connection> }
  | { type: "timeline"; timeline: TimelineView }
  | { type: "window"; windowS: number }
  | { type: "select"; job?: string; node?: string; whatIf?: boolean }
  | { type: "filter"; text: string }
  | { type: "notice"; message: string };

/** Return the model after an action; the same object where nothing changed. */
export function reduce(model: Model, action: Action): Model {
  switch (action.type) {
    case "granted":
      return { ...model, access: "granted", refusal: "", caller: action.caller };
    case "refused":
      return { ...FIRST, access: "refused", refusal: action.message, filter: model.filter, job: model.job, node: model.node };
    case "frame":
      return shown(model, action.frame, action.mode);
    case "changes":
      return model.frame ? { ...model, frame: after(model.frame, action.changes) } : model;
    case "seeking":
      return { ...model, mode: "past", now: action.at, isSeeking: true };
    case "time":
      return model.now === action.now ? model : { ...model, now: action.now };
    case "mode":
      return model.mode === action.mode ? model : { ...model, mode: action.mode, isSeeking: false };
    case "speed":
      return { ...model, speed: action.speed };
    case "connection":
      return { ...model, connection: { ...model.connection, ...action.connection } };
    case "timeline":
      return { ...model, timeline: action.timeline };
    case "window":
      return { ...model, windowS: action.windowS };
    case "select":
      return { ...model, job: action.job ?? "", node: action.node ?? "", whatIf: action.whatIf ?? false };
    case "filter":
      return { ...model, filter: action.text };
    case "notice":
      return model.notice === action.message ? model : { ...model, notice: action.message };
  }
}

function shown(model: Model, frame: Frame, mode: Mode): Model {
  const now = mode === "live" ? Math.max(model.mode === "live" ? model.now : 0, frame.at) : model.now;
  return { ...model, frame, mode, now, isSeeking: false, notice: "" };
}

/** Return whether the caller may change a job of a user. */
export function mayChange(caller: CallerView | null, user: string): boolean {
  return caller?.role === "admin" || (caller?.role === "user" && caller.user === user);
}
