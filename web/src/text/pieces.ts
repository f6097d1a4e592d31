// Splits a sentence at the names in it that mean something. Pure.

export interface Piece {
  kind: "" | "job" | "node";
  text: string;
}

const NAME = /[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?/g;

export function pieces(text: string, kindOf: (word: string) => Piece["kind"]): Piece[] {
  const found: Piece[] = [];
  let begin = 0;
  for (const match of text.matchAll(NAME)) {
    const kind = kindOf(match[0]);
    if (kind === "") continue;
    if (match.index > begin) found.push({ kind: "", text: text.slice(begin, match.index) });
    found.push({ kind, text: match[0] });
    begin = match.index + match[0].length;
  }
  if (begin < text.length) found.push({ kind: "", text: text.slice(begin) });
  return found;
}
