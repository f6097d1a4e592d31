// Small parts that several views share.

import { Fragment } from "preact";
import { jobColour } from "../draw/colour.ts";
import { store } from "../state/store.ts";
import { pieces } from "../text/pieces.ts";
import { useTheme } from "./theme.ts";

export function Swatch({ job, isEmpty }: { job: string; isEmpty: boolean }) {
  const colour = jobColour(job, useTheme().isNight);
  return <span class="swatch" aria-hidden style={isEmpty ? { boxShadow: `inset 0 0 0 2px ${colour}` } : { background: colour }} />;
}

/** A sentence of the server in which the jobs and nodes that there are can be followed. */
export function Linked({ text }: { text: string }) {
  const { frame } = store.model;
  const kindOf = (word: string) => (frame?.jobs.has(word) ? "job" : frame?.nodes.has(word) ? "node" : "");
  return (
    <>
      {pieces(text, kindOf).map((piece, index) => (
        <Fragment key={index}>
          {piece.kind === "" ? piece.text : <JumpTo kind={piece.kind} name={piece.text} />}
        </Fragment>
      ))}
    </>
  );
}

export function JumpTo({ kind, name }: { kind: "job" | "node"; name: string }) {
  return (
    <button type="button" class="link" onClick={() => store.dispatch({ type: "select", [kind]: name })}>
      {name}
    </button>
  );
}
