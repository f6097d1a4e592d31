// Figures and times as people read them. Pure: `now` is a parameter.

const UNITS: readonly [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

// To make one takes a thousand times as long as to use it.
const SECONDS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const MINUTES = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const SMALL = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });
const LARGE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

/** Return a span such as `42 s`, `12 min`, `3 h 5 min`, `2 d 4 h`. */
export function span(seconds: number): string {
  if (!Number.isFinite(seconds)) return "";
  let left = Math.max(0, Math.round(seconds));
  if (left >= 300) left = Math.round(left / 60) * 60;
  const parts: string[] = [];
  for (const [size, unit] of UNITS) {
    const count = Math.floor(left / size);
    if (count === 0 && parts.length === 0) continue;
    if (count > 0) parts.push(`${count} ${unit}`);
    left -= count * size;
    if (parts.length === 2 || (parts.length === 1 && count === 0)) break;
  }
  return parts.join(" ") || "0 s";
}

/** Return a span to the second, up to days, for figures that are compared: `6 min 9 s`, `3 h 5 min`. */
export function fineSpan(seconds: number): string {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return `${significant(Math.round(seconds * 10) / 10)} s`;
  const left = Math.round(seconds);
  return left < 3_600 ? `${Math.floor(left / 60)} min ${left % 60} s` : span(left);
}

/** Return how long ago something was, or until when it is: `in 5 min`, `3 h ago`, `now`. */
export function relative(at: number, now: number): string {
  const seconds = (at - now) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
}

/** Return a time of day, with the date unless it is the day of `now`; local time. */
export function clock(at: number, now: number, withSeconds = true): string {
  const when = new Date(at);
  const time = (withSeconds ? SECONDS : MINUTES).format(when);
  if (when.toDateString() === new Date(now).toDateString()) return time;
  const isThisYear = when.getFullYear() === new Date(now).getFullYear();
  const day = when.toLocaleDateString("en-GB", { day: "numeric", month: "short", ...(isThisYear ? {} : { year: "numeric" }) });
  return `${day} ${time}`;
}

export function counted(count: number, noun: string): string {
  return `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Return a count with thousands apart; half a GPU stays half. */
export function whole(count: number): string {
  return (count < 10 ? SMALL : LARGE).format(count);
}

export function percent(part: number, all: number): string {
  return all > 0 ? `${Math.round((100 * part) / all)} %` : "";
}

/** Return how many replicas a job has of how many it may have: `3 of 2-8`. */
export function replicas(job: { replicas: number; min_replicas: number; max_replicas: number }): string {
  const { min_replicas: least, max_replicas: most } = job;
  return `${job.replicas} of ${least === most ? most : `${least}–${most}`}`;
}

export function significant(value: number): string {
  if (!Number.isFinite(value)) return "";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  return value.toLocaleString("en-US", { maximumSignificantDigits: 4 });
}

/** Return what stands at the ticks of a time axis, seconds since the epoch: the day where a day begins, else the time. */
export function timeTicks(seconds: readonly number[]): string[] {
  const isFine = seconds.length > 1 && (seconds[1] ?? 0) - (seconds[0] ?? 0) < 60;
  return seconds.map((each) => {
    const when = new Date(each * 1000);
    if (when.getHours() === 0 && when.getMinutes() === 0 && !isFine) {
      return when.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    }
    return (isFine ? SECONDS : MINUTES).format(when);
  });
}
