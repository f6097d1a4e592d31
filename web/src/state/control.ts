// What the page does: signs in, follows, seeks, plays, steps, and keeps the address in step.

import { ApiError, ask, setToken, skewMs } from "../api/client.ts";
import type { CallerView, ChangesList, MomentView, SessionView, TimelineView } from "../api/types.ts";
import { frameOf } from "./frame.ts";
import { linkOf, parseLink } from "./link.ts";
import { LiveFeed } from "./live.ts";
import { Playback } from "./playback.ts";
import { store } from "./store.ts";
import { findStep, type StepKind } from "./steps.ts";

const BUCKETS = 500;
const TIMELINE_EVERY_MS = 10_000;
const PARTIAL_MS = 700;

const live = new LiveFeed(store, refuse);
const playback = new Playback(
  store,
  (at, seconds, frames) => ask<ChangesList>("/state/changes", { query: { at: rfc3339(at), seconds, frames } }),
  () => goLive(),
  (error) => {
    store.dispatch({ type: "mode", mode: "past" });
    fail(error);
  },
);

export function rfc3339(at: number): string {
  return new Date(at).toISOString();
}

/** Begin: sign in with the token of this tab, or without one where the server asks for none. */
export async function begin(): Promise<void> {
  const link = parseLink(location.hash);
  store.dispatch({ type: "select", job: link.job, node: link.node });
  store.dispatch({ type: "filter", text: link.filter });
  try {
    if (link.login) await spend(link.login);
    const caller = await ask<CallerView>("/whoami");
    store.dispatch({ type: "granted", caller });
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return refuse(link.login ? error.message : "");
    fail(error);
    setTimeout(() => void begin(), 3_000);
    return;
  }
  void refreshTimeline();
  if (link.at === null) live.start();
  else void seek(link.at);
}

/** Begin a session with a code, which is not left in the address. */
async function spend(code: string): Promise<void> {
  history.replaceState(null, "", location.pathname + location.search);
  setToken("");
  const session = await ask<SessionView>("/sessions", { method: "POST", body: { code } });
  setToken(session.token);
}

export async function signIn(token: string): Promise<void> {
  setToken(token.trim());
  try {
    await ask<CallerView>("/whoami");
  } catch (error) {
    setToken("");
    const message = error instanceof Error ? error.message : String(error);
    return store.dispatch({ type: "refused", message });
  }
  await begin();
}

export function signOut(): void {
  setToken("");
  refuse("");
}

function refuse(message: string): void {
  live.stop();
  playback.stop();
  setToken("");
  store.dispatch({ type: "refused", message });
}

export function fail(error: unknown): void {
  if (error instanceof ApiError && error.status === 401) return refuse(error.message);
  store.dispatch({ type: "notice", message: error instanceof Error ? error.message : String(error) });
}

export function goLive(): void {
  playback.stop();
  wanted = null;
  store.dispatch({ type: "mode", mode: "live" });
  live.start();
  void refreshTimeline();
}

let wanted: number | null = null;
let isAsking = false;

/** Show a moment. While one is asked for, only the newest wish is kept, so that dragging never queues. */
export async function seek(moment: number): Promise<void> {
  const at = Math.round(moment);
  live.stop();
  playback.stop();
  wanted = at;
  store.dispatch({ type: "seeking", at });
  if (isAsking) return;
  isAsking = true;
  try {
    while (wanted !== null) {
      const asked: number = wanted;
      const answer = await ask<MomentView>("/state", { query: { at: rfc3339(asked) } });
      if (wanted === null) return;
      store.dispatch({ type: "frame", frame: frameOf(answer), mode: "past" });
      if (wanted === asked) wanted = null;
      else store.dispatch({ type: "seeking", at: wanted });
    }
  } catch (error) {
    wanted = null;
    store.dispatch({ type: "mode", mode: "past" });
    fail(error);
  } finally {
    isAsking = false;
  }
}

export function togglePlay(): void {
  const { mode, timeline, now } = store.model;
  if (mode === "playing") {
    playback.stop();
    store.dispatch({ type: "mode", mode: "past" });
  } else if (mode === "live" && timeline) {
    // There is nothing to play after now: begin with what the strip shows.
    void seek(Date.parse(timeline.since)).then(() => playback.start());
  } else if (now > 0) playback.start();
}

export function setSpeed(speed: number): void {
  store.dispatch({ type: "speed", speed });
  if (store.model.mode === "playing") playback.start();
}

/** Go to the next or previous decision, resize or failure, seen from the moment that is shown. */
export async function step(kind: StepKind, direction: 1 | -1): Promise<void> {
  const { frame, now } = store.model;
  if (!frame) return;
  try {
    const found = await findStep(kind, direction, { position: frame.position, now, end: frame.end });
    if (found === null) {
      const which = direction > 0 ? "later" : "earlier";
      store.dispatch({ type: "notice", message: `There is no ${which} ${kind}, or none near.` });
    } else await seek(found);
  } catch (error) {
    fail(error);
  }
}

export function setWindow(windowS: number): void {
  store.dispatch({ type: "window", windowS });
  void refreshTimeline();
}

let refreshing = 0;

/** Fetch the strip: its window ends now, or has the shown moment in its middle. */
export async function refreshTimeline(): Promise<void> {
  const turn = ++refreshing;
  const { windowS, mode, now, timeline } = store.model;
  const query: Record<string, string | number> = { buckets: BUCKETS };
  if (windowS > 0) {
    const end = Date.parse(timeline?.ends_at ?? "") || now;
    const until = mode === "live" ? Math.max(now, end) : Math.min(end, now + windowS * 500);
    query["since"] = rfc3339(until - windowS * 1000);
    query["until"] = rfc3339(until);
  }
  try {
    const view = await ask<TimelineView>("/timeline", { query });
    if (turn !== refreshing) return;
    store.dispatch({ type: "timeline", timeline: view });
    // Of a long log the first answers know only the beginning.
    const isPartial = Date.parse(view.known_until ?? "") < Date.parse(view.ends_at ?? "");
    if (isPartial) setTimeout(() => turn === refreshing && void refreshTimeline(), PARTIAL_MS);
  } catch (error) {
    if (turn === refreshing && store.model.mode !== "live") fail(error);
  }
}

/** Keep what has to go on by itself: the clock, the strip, the address. */
export function keepTime(): void {
  setInterval(() => {
    const { mode, access } = store.model;
    if (access === "granted" && mode === "live") store.dispatch({ type: "time", now: serverNow() });
  }, 1_000);
  setInterval(() => {
    if (store.model.access === "granted" && store.model.mode === "live" && !document.hidden) void refreshTimeline();
  }, TIMELINE_EVERY_MS);
  let shownLink = location.hash;
  let timer = 0;
  store.subscribe(() => {
    if (timer || store.model.access !== "granted" || store.model.mode === "playing") return;
    timer = window.setTimeout(() => {
      timer = 0;
      const link = linkOf(store.model);
      if (link === shownLink) return;
      shownLink = link;
      history.replaceState(null, "", link || location.pathname + location.search);
    }, 250);
  });
  addEventListener("hashchange", () => {
    shownLink = location.hash;
    const link = parseLink(location.hash);
    if (link.login) return void begin();
    store.dispatch({ type: "select", job: link.job, node: link.node });
    store.dispatch({ type: "filter", text: link.filter });
    if (link.at === null) goLive();
    else void seek(link.at);
  });
}

/** Return now by the server's clock, as its last answer told it. */
function serverNow(): number {
  return Date.now() + skewMs();
}
