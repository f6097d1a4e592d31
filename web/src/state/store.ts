// The one store: holds the model, applies actions, tells whoever listens.

import { useLayoutEffect, useReducer, useRef } from "preact/hooks";
import { type Action, FIRST, type Model, reduce } from "./model.ts";

type Listener = () => void;

export class Store {
  model: Model = FIRST;
  private readonly listeners = new Set<Listener>();

  dispatch = (action: Action): void => {
    const next = reduce(this.model, action);
    if (next === this.model) return;
    this.model = next;
    for (const listener of [...this.listeners]) listener();
  };

  subscribe(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

export const store = new Store();

/** Return a part of the model; the component is drawn again when that part is another. */
export function useModel<T>(select: (model: Model) => T): T {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const value = select(store.model);
  const latest = useRef({ select, value });
  latest.current = { select, value };
  useLayoutEffect(() => {
    const look = () => {
      if (latest.current.select(store.model) !== latest.current.value) redraw(undefined);
    };
    look();
    return store.subscribe(look);
  }, []);
  return value;
}
