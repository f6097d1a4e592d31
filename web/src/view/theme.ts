// Day or night as the system says, and the colours of the style sheet for what is drawn on a canvas.

import { useEffect, useState } from "preact/hooks";
import type { Theme } from "../draw/paint.ts";

const NIGHT = "(prefers-color-scheme: dark)";

export function useTheme(): Theme {
  const [theme, set] = useState(read);
  useEffect(() => {
    const media = matchMedia(NIGHT);
    const change = () => set(read());
    media.addEventListener("change", change);
    return () => media.removeEventListener("change", change);
  }, []);
  return theme;
}

function read(): Theme {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    isNight: matchMedia(NIGHT).matches,
    paper: of("card"),
    free: of("free"),
    frame: of("line"),
    soft: of("soft"),
    ink: of("ink"),
    bad: of("bad"),
    warn: of("warn"),
    accent: of("accent"),
    foreign: of("foreign"),
  };
}
