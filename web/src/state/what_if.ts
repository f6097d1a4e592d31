// Asks what another policy would have done, and waits for the answer.

import { ask } from "../api/client.ts";
import type { WhatIfView } from "../api/types.ts";

const EVERY_MS = 700;

export interface WhatIfChoice {
  at: string;
  pool: string;
  policy: string;
  placer: string;
}

/** Ask, tell each state of the question, and return once it is over or `signal` says so; raises what `ask` raises. */
export async function followWhatIf(choice: WhatIfChoice, tell: (view: WhatIfView) => void, signal: AbortSignal): Promise<void> {
  let view = await ask<WhatIfView>("/what-ifs", { method: "POST", body: choice, signal });
  tell(view);
  const path = `/what-ifs/${encodeURIComponent(view.what_if_id)}`;
  try {
    while (view.state === "waiting" || view.state === "running") {
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
      signal.throwIfAborted();
      view = await ask<WhatIfView>(path, { signal });
      tell(view);
    }
  } finally {
    // Nobody looks any more: its process may end.
    if (signal.aborted && view.state !== "done") void ask(path, { method: "DELETE" }).catch(() => undefined);
  }
}
