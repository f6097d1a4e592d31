// A plot of uPlot, made anew when its options are, given new data otherwise.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useSize } from "./size.ts";

interface Props {
  data: uPlot.AlignedData;
  /** Of the plot's look; another function makes another plot. */
  options: (width: number, height: number) => uPlot.Options;
  height: number;
  label: string;
}

export function Plot({ data, options, height, label }: Props) {
  const outer = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const { width } = useSize(outer);
  const isWide = width > 0;
  useEffect(() => {
    if (!outer.current || !isWide) return;
    plot.current = new uPlot(options(width, height), data, outer.current);
    return () => {
      plot.current?.destroy();
      plot.current = null;
    };
  }, [options, isWide]);
  useEffect(() => plot.current?.setSize({ width, height }), [width, height]);
  useEffect(() => plot.current?.setData(data), [data]);
  return <div class="plot" ref={outer} role="img" aria-label={label} style={{ height: `${height}px` }} />;
}
