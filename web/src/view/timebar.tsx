// The slider over time: the strip, a playhead on it, play, steps, and back to now.

import { useCallback, useMemo, useState } from "preact/hooks";
import type { TimelineView } from "../api/types.ts";
import { stripData, stripOptions } from "../draw/strip.ts";
import { goLive, seek, setSpeed, setWindow, step, togglePlay } from "../state/control.ts";
import { SPEEDS } from "../state/model.ts";
import type { StepKind } from "../state/steps.ts";
import { store, useModel } from "../state/store.ts";
import { clock, counted, relative, whole } from "../text/format.ts";
import { Plot } from "./plot.tsx";
import { useTheme } from "./theme.ts";

const STRIP = 78;
const WINDOWS: readonly [number, string][] = [
  [0, "whole log"],
  [604_800, "7 days"],
  [86_400, "24 hours"],
  [21_600, "6 hours"],
  [3_600, "1 hour"],
  [600, "10 minutes"],
];

export function Timebar() {
  const timeline = useModel((model) => model.timeline);
  return (
    <section class="timebar" aria-label="Time">
      <Controls />
      {timeline ? <Strip timeline={timeline} /> : <div class="strip" />}
    </section>
  );
}

function Controls() {
  const mode = useModel((model) => model.mode);
  const speed = useModel((model) => model.speed);
  const windowS = useModel((model) => model.windowS);
  const [kind, setKind] = useState<StepKind>("decision");
  const isPlaying = mode === "playing";
  return (
    <div class="controls">
      <button type="button" class="play" aria-label={isPlaying ? "Pause" : "Play"} title="Play or pause (space)" onClick={togglePlay}>
        {isPlaying ? <Icon path="M3 2h3v10H3zM8 2h3v10H8z" /> : <Icon path="M3 1.5l9 5.5-9 5.5z" />}
      </button>
      <label>
        <span class="hidden">Speed</span>
        <select value={speed} onChange={(event) => setSpeed(Number(event.currentTarget.value))}>
          {SPEEDS.map((each) => (
            <option key={each} value={each}>
              {whole(each)}×
            </option>
          ))}
        </select>
      </label>
      <span class="steps">
        <button type="button" class="quiet" aria-label={`Previous ${kind}`} title={`Previous ${kind} ( , )`} onClick={() => void step(kind, -1)}>
          <Icon path="M3 2h1.6v10H3zM12 2v10L5 7z" />
        </button>
        <label>
          <span class="hidden">Step to</span>
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value as StepKind)}>
            <option value="decision">decision</option>
            <option value="resize">resize</option>
            <option value="failure">failure</option>
          </select>
        </label>
        <button type="button" class="quiet" aria-label={`Next ${kind}`} title={`Next ${kind} ( . )`} onClick={() => void step(kind, 1)}>
          <Icon path="M2 2l7 5-7 5zM9.400 2H11v10H9.400z" />
        </button>
      </span>
      <Moment />
      <span class="legend" aria-hidden="true">
        <span>GPUs in use</span>
        <span class="waits">jobs waiting</span>
        <span class="fails">failures</span>
      </span>
      <button
        type="button"
        class="quiet"
        title="What would another policy have done from this moment on?"
        onClick={() => store.dispatch({ type: "select", whatIf: true })}
      >
        What if …
      </button>
      <label class="window">
        <span class="hidden">Part of the log that the strip shows</span>
        <select value={windowS} onChange={(event) => setWindow(Number(event.currentTarget.value))}>
          {WINDOWS.map(([seconds, name]) => (
            <option key={seconds} value={seconds}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <button type="button" class={`to-live${mode === "live" ? " on" : ""}`} aria-pressed={mode === "live"} onClick={goLive}>
        <i aria-hidden="true" /> Live
      </button>
    </div>
  );
}

function Icon({ path }: { path: string }) {
  return (
    <svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}

function Moment() {
  const now = useModel((model) => Math.floor(model.now / 1000) * 1000);
  const mode = useModel((model) => model.mode);
  const isSeeking = useModel((model) => model.isSeeking);
  const position = useModel((model) => model.frame?.position ?? 0);
  if (now === 0) return <span class="moment" />;
  const end = Date.now();
  return (
    <span class="moment">
      <time dateTime={new Date(now).toISOString()}>{clock(now, end)}</time>
      <span class="soft">
        {mode === "live" ? "now" : relative(now, end)}
        <span class="wide">
          {" "}
          · event {whole(position)}
          {isSeeking ? " …" : ""}
        </span>
      </span>
    </span>
  );
}

function Strip({ timeline }: { timeline: TimelineView }) {
  const theme = useTheme();
  const data = useMemo(() => stripData(timeline), [timeline]);
  const options = useCallback((width: number, height: number) => stripOptions(theme, width, height, () => store.model.timeline), [theme]);
  return (
    <div class="strip">
      <Plot data={data} options={options} height={STRIP} label={summary(timeline)} />
      <Slider timeline={timeline} />
    </div>
  );
}

function summary(view: TimelineView): string {
  const sum = (counts: number[]) => Math.round(counts.reduce((total, count) => total + count, 0));
  return `GPUs in use over time; ${counted(sum(view.decisions), "decision")}, ${counted(sum(view.resizes), "resize")}, ${counted(sum(view.failures), "failure")}`;
}

function Slider({ timeline }: { timeline: TimelineView }) {
  const mode = useModel((model) => model.mode);
  const now = useModel((model) => model.now);
  const [hover, setHover] = useState<{ x: number; at: number } | null>(null);
  const since = Date.parse(timeline.since);
  const until = Math.max(since + 1, Date.parse(timeline.until));
  const value = mode === "live" ? until : Math.min(until, Math.max(since, now));
  const share = (value - since) / (until - since);
  const press = (event: KeyboardEvent) => {
    const moved = movedBy(event, value, since, until);
    if (moved === null) return;
    event.preventDefault();
    void seek(moved);
  };
  return (
    <>
      <div class={`playhead${mode === "live" ? " live" : ""}`} style={{ left: `${share * 100}%` }} />
      {hover && (
        <div class={`hover${hover.x > 0.85 ? " left" : ""}`} style={{ left: `${hover.x * 100}%` }}>
          {hoverText(timeline, hover.at)}
        </div>
      )}
      <input
        type="range"
        class="slider"
        aria-label="Moment that is shown"
        aria-valuetext={mode === "live" ? "now, live" : clock(value, Date.now())}
        min={since}
        max={until}
        step="any"
        value={value}
        onInput={(event) => void seek(Number(event.currentTarget.value))}
        onKeyDown={press}
        onMouseMove={(event) => {
          const x = Math.min(1, Math.max(0, event.offsetX / event.currentTarget.clientWidth));
          setHover({ x, at: since + x * (until - since) });
        }}
        onMouseLeave={() => setHover(null)}
      />
    </>
  );
}

/** Return the moment that a key moves the slider to; null: the key is none of its. */
function movedBy(event: KeyboardEvent, value: number, since: number, until: number): number | null {
  const small = ((until - since) / 500) * (event.shiftKey ? 10 : 1);
  const large = (until - since) / 20;
  const steps: Record<string, number> = {
    ArrowLeft: -small,
    ArrowDown: -small,
    ArrowRight: small,
    ArrowUp: small,
    PageDown: -large,
    PageUp: large,
    Home: since - value,
    End: until - value,
  };
  const moved = steps[event.key];
  return moved === undefined ? null : Math.min(until, Math.max(since, value + moved));
}

function hoverText(view: TimelineView, at: number): string {
  const index = view.at.findLastIndex((begin) => begin * 1000 <= at);
  const used = view.gpus_in_use[index];
  if (used === undefined) return clock(at, Date.now());
  const failures = view.failures[index] ?? 0;
  return [
    clock(at, Date.now()),
    `${whole(used)} of ${whole(view.capacity[index] ?? 0)} GPUs`,
    `${whole(Math.round(view.waiting[index] ?? 0))} waiting`,
    failures >= 0.5 ? counted(Math.round(failures), "failure") : "",
  ]
    .filter(Boolean)
    .join(" · ");
}
