// Follows what happens now: a stream of changes, begun again after a cut.

import { ApiError, open } from "../api/client.ts";
import { eventsOf } from "../api/sse.ts";
import type { ChangesView, MomentView } from "../api/types.ts";
import { frameOf } from "./frame.ts";
import type { Store } from "./store.ts";

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 8_000;
/** The server sends at least a heartbeat in this time; a stream that is silent for longer is dead. */
const SILENCE_MS = 45_000;

export class LiveFeed {
  private running: AbortController | null = null;

  constructor(
    private readonly store: Store,
    private readonly refused: (message: string) => void,
  ) {}

  start(): void {
    if (this.running) return;
    this.running = new AbortController();
    void this.follow(this.running.signal);
  }

  stop(): void {
    this.running?.abort();
    this.running = null;
  }

  private async follow(stopped: AbortSignal): Promise<void> {
    let wait = FIRST_RETRY_MS;
    while (!stopped.aborted) {
      try {
        for await (const _ of this.stream(stopped)) wait = FIRST_RETRY_MS;
      } catch (error) {
        if (stopped.aborted) return;
        if (error instanceof ApiError && error.status === 401) return this.refused(error.message);
        this.lost(error);
      }
      if (stopped.aborted) return;
      this.lost(null);
      await pause(wait, stopped);
      wait = Math.min(LONGEST_RETRY_MS, wait * 2);
    }
  }

  /** Take what one connection brings, the whole state first; yield after each event. */
  private async *stream(stopped: AbortSignal): AsyncGenerator<void> {
    const silence = new AbortController();
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    const signal = AbortSignal.any([stopped, silence.signal]);
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      this.store.dispatch({ type: "connection", connection: { state: "open", heardAt: Date.now(), message: "" } });
    };
    try {
      const response = await open("/state", { query: { watch: "true" }, signal });
      for await (const { event, data } of eventsOf(response, heard)) {
        if (stopped.aborted) return;
        if (event === "state") {
          this.store.dispatch({ type: "frame", frame: frameOf(JSON.parse(data) as MomentView), mode: "live" });
        } else if (event === "changes") {
          this.store.dispatch({ type: "changes", changes: JSON.parse(data) as ChangesView });
        }
        yield;
      }
    } finally {
      clearTimeout(timer);
    }
  }

  private lost(error: unknown): void {
    const message = error instanceof ApiError ? error.message : "";
    const before = this.store.model.connection;
    this.store.dispatch({ type: "connection", connection: { state: "lost", message: message || before.message } });
  }
}

function pause(ms: number, stopped: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    stopped.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    });
  });
}
