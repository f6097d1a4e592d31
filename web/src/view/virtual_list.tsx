// A list of rows of one height, of which only those in sight are made.

import { type ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { useSize } from "./size.ts";

interface Props<T> {
  items: readonly T[];
  rowHeight: number;
  label: string;
  keyOf: (item: T) => string;
  row: (item: T) => ComponentChildren;
  /** Shown instead of no rows. */
  empty: ComponentChildren;
}

const SPARE = 4;

export function VirtualList<T>({ items, rowHeight, label, keyOf, row, empty }: Props<T>) {
  const outer = useRef<HTMLDivElement>(null);
  const { height } = useSize(outer);
  const [top, setTop] = useState(0);
  const first = Math.max(0, Math.min(items.length, Math.floor(top / rowHeight)) - SPARE);
  const count = Math.ceil((height || 600) / rowHeight) + 2 * SPARE;
  const shown = items.slice(first, first + count);
  return (
    <div class="list" ref={outer} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
      {items.length === 0 && <div class="none">{empty}</div>}
      <ul aria-label={label} style={{ height: `${items.length * rowHeight}px` }}>
        {shown.map((item, index) => (
          <li
            key={keyOf(item)}
            aria-setsize={items.length}
            aria-posinset={first + index + 1}
            style={{ top: `${(first + index) * rowHeight}px`, height: `${rowHeight}px` }}
          >
            {row(item)}
          </li>
        ))}
      </ul>
    </div>
  );
}
