// The page: its parts, and the keys that work everywhere.

import { useEffect } from "preact/hooks";
import { step, togglePlay } from "../state/control.ts";
import { store, useModel } from "../state/store.ts";
import { Empty } from "./empty.tsx";
import { Grid } from "./grid.tsx";
import { Header } from "./header.tsx";
import { JobPanel } from "./job_panel.tsx";
import { Lists } from "./lists.tsx";
import { Login } from "./login.tsx";
import { NodePanel } from "./panel.tsx";
import { Summary } from "./summary.tsx";
import { Timebar } from "./timebar.tsx";
import { WhatIfPanel } from "./what_if.tsx";

export function App() {
  const access = useModel((model) => model.access);
  if (access === "refused") return <Login />;
  return (
    <>
      <Header />
      <Notice />
      {access === "granted" ? <Cluster /> : <p class="waiting">Asking the server …</p>}
    </>
  );
}

function Cluster() {
  const frame = useModel((model) => model.frame);
  const job = useModel((model) => model.job);
  const node = useModel((model) => model.node);
  const whatIf = useModel((model) => model.whatIf);
  useKeys();
  if (!frame) {
    return (
      <main>
        <p class="waiting">Waiting for the cluster’s state …</p>
      </main>
    );
  }
  return (
    <>
      <main class={job || node || whatIf ? "with-panel" : ""}>
        <Summary frame={frame} />
        <section class="nodes" aria-label="Nodes">
          {frame.jobs.size === 0 && <Empty frame={frame} />}
          <Grid frame={frame} />
        </section>
        <div class="side">
          <Lists frame={frame} />
          {job && <JobPanel key={`job ${job}`} jobId={job} frame={frame} />}
          {!job && node && <NodePanel key={`node ${node}`} name={node} frame={frame} />}
          {whatIf && <WhatIfPanel frame={frame} />}
        </div>
      </main>
      <Timebar />
    </>
  );
}

function Notice() {
  const notice = useModel((model) => model.notice);
  const warning = useModel((model) => model.caller?.warning ?? "");
  return (
    <>
      {warning && (
        <p class="notice warn" role="status">
          {warning}
        </p>
      )}
      {notice && (
        <p class="notice bad" role="alert">
          {notice}
          <button type="button" class="quiet" onClick={() => store.dispatch({ type: "notice", message: "" })}>
            Dismiss
          </button>
        </p>
      )}
    </>
  );
}

/** Escape closes, space plays, comma and full stop step, a slash goes to the filter. */
function useKeys(): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const target = event.target as HTMLElement;
      if (document.querySelector("dialog[open]")) return;
      if (event.key === "Escape") {
        if (target.matches("input[type=search]")) target.blur();
        else store.dispatch({ type: "select" });
        return;
      }
      if (target.matches("input:not([type=range]), select, textarea")) return;
      if (event.key === "/") {
        event.preventDefault();
        document.querySelector<HTMLInputElement>("input[type=search]")?.focus();
      } else if (event.key === " " && !target.matches("button, a, canvas")) {
        event.preventDefault();
        togglePlay();
      } else if (event.key === ",") void step("decision", -1);
      else if (event.key === ".") void step("decision", 1);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}
