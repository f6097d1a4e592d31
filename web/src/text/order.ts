// Names in the order of the numbers in them: node-9 before node-10. Pure, but for what it remembers.

const known = new Map<string, string>();

/** Return a text whose plain order is that of the name. */
export function orderKey(name: string): string {
  let key = known.get(name);
  if (key === undefined) {
    key = name.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0"));
    if (known.size > 50_000) known.clear();
    known.set(name, key);
  }
  return key;
}

export function byName(a: { name: string }, b: { name: string }): number {
  const [left, right] = [orderKey(a.name), orderKey(b.name)];
  return left < right ? -1 : left > right ? 1 : 0;
}
