// Plays the log from a moment on: states a little apart are fetched in pieces, the next one ahead of its time.

import type { ChangesList, ChangesView } from "../api/types.ts";
import type { Store } from "./store.ts";

/** Frames of a piece, and how long it takes to play: ten frames a second. */
const FRAMES = 60;
const PIECE_S = 6;
/** Ask for the next piece when less than this is left. */
const AHEAD_S = 4;

export type FetchPiece = (at: number, seconds: number, frames: number) => Promise<ChangesList>;

/** The frames to come, in order, with the moment up to which they are known. Pure but for its own list. */
export class Reel {
  private items: ChangesView[] = [];
  /** Milliseconds of the log up to which all is known. */
  until: number;

  constructor(begin: number) {
    this.until = begin;
  }

  add(items: readonly ChangesView[], until: number): void {
    this.items.push(...items);
    this.until = Math.max(this.until, until);
  }

  /** Take the frames up to a moment. */
  take(now: number): ChangesView[] {
    const count = this.items.findIndex((each) => Date.parse(each.at) > now);
    return this.items.splice(0, count < 0 ? this.items.length : count);
  }
}

export class Playback {
  private reel = new Reel(0);
  private timer = 0;
  private isFetching = false;
  private lastTick = 0;
  private turn = 0;

  constructor(
    private readonly store: Store,
    private readonly fetchPiece: FetchPiece,
    private readonly ended: () => void,
    private readonly failed: (error: unknown) => void,
  ) {}

  /** Play on from the moment that is shown. */
  start(): void {
    this.stop();
    this.reel = new Reel(this.store.model.now);
    this.store.dispatch({ type: "mode", mode: "playing" });
    this.lastTick = performance.now();
    this.timer = requestAnimationFrame(this.tick);
  }

  stop(): void {
    this.turn += 1;
    this.isFetching = false;
    cancelAnimationFrame(this.timer);
    this.timer = 0;
  }

  private tick = (wall: number): void => {
    const { now: shown, speed } = this.store.model;
    const spent = Math.min(100, Math.max(0, wall - this.lastTick));
    this.lastTick = wall;
    // What is not known yet is waited for.
    const now = Math.min(shown + spent * speed, Math.max(shown, this.reel.until));
    for (const changes of this.reel.take(now)) this.store.dispatch({ type: "changes", changes });
    this.store.dispatch({ type: "time", now });
    if (this.isAtEnd(now)) {
      this.stop();
      this.ended();
      return;
    }
    if ((this.reel.until - now) / 1000 < AHEAD_S * speed) void this.fetchNext(speed);
    this.timer = requestAnimationFrame(this.tick);
  };

  private isAtEnd(now: number): boolean {
    const { frame, timeline } = this.store.model;
    const ends = Date.parse(timeline?.ends_at ?? "");
    return frame !== null && frame.position >= frame.end && !(now < ends);
  }

  private async fetchNext(speed: number): Promise<void> {
    if (this.isFetching) return;
    this.isFetching = true;
    const { turn } = this;
    const begin = this.reel.until;
    const seconds = PIECE_S * speed;
    try {
      const piece = await this.fetchPiece(begin, seconds, FRAMES);
      if (turn === this.turn) this.reel.add(piece.items, begin + seconds * 1000);
    } catch (error) {
      if (turn !== this.turn) return;
      this.stop();
      this.failed(error);
    } finally {
      if (turn === this.turn) this.isFetching = false;
    }
  }
}
