// The colour of a job: a function of its id alone, so that it is the same in every frame, tab and picture. Pure.

/** FNV-1a, 32 bits. */
export function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) {
    value ^= text.charCodeAt(index);
    value = Math.imul(value, 0x01000193);
  }
  // FNV's low bits of short texts that differ in their last letter lie close: mix them.
  value ^= value >>> 15;
  value = Math.imul(value, 0x2c1b3ce7);
  value ^= value >>> 12;
  return value >>> 0;
}

const HUES = 36;
/** Lightness and chroma of OKLCH: three tones a hue. */
const DAY: readonly [number, number][] = [
  [0.64, 0.15],
  [0.72, 0.13],
  [0.55, 0.14],
];
const NIGHT: readonly [number, number][] = [
  [0.7, 0.14],
  [0.78, 0.11],
  [0.62, 0.14],
];

const known = new Map<string, string>();

export function jobColour(jobId: string, isNight: boolean): string {
  const key = (isNight ? "n" : "d") + jobId;
  let colour = known.get(key);
  if (colour === undefined) {
    colour = computed(jobId, isNight);
    if (known.size > 50_000) known.clear();
    known.set(key, colour);
  }
  return colour;
}

function computed(jobId: string, isNight: boolean): string {
  const value = hash(jobId);
  const hue = (value % HUES) * (360 / HUES);
  const tones = isNight ? NIGHT : DAY;
  const [lightness, chroma] = tones[Math.floor(value / HUES) % tones.length] ?? [0.6, 0.14];
  return rgb(lightness, chroma, (hue * Math.PI) / 180);
}

/** Return an OKLCH colour as #rrggbb (Ottosson, 2020), for canvases of browsers that do not know oklch(). */
export function rgb(lightness: number, chroma: number, hue: number): string {
  const a = chroma * Math.cos(hue);
  const b = chroma * Math.sin(hue);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return `#${linear.map((each) => byte(each)).join("")}`;
}

function byte(linear: number): string {
  const clipped = Math.min(1, Math.max(0, linear));
  const encoded = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
  return Math.round(encoded * 255)
    .toString(16)
    .padStart(2, "0");
}
