// The top line: name, filter, connection, caller.

import { signOut } from "../state/control.ts";
import { store, useModel } from "../state/store.ts";
import { token } from "../api/client.ts";
import { useEffect, useState } from "preact/hooks";
import { span } from "../text/format.ts";

export function Header() {
  const filter = useModel((model) => model.filter);
  const caller = useModel((model) => model.caller);
  return (
    <header>
      <h1>
        <Logo />
        voda
      </h1>
      <label class="filter">
        <span class="hidden">Filter jobs and nodes</span>
        <input
          type="search"
          value={filter}
          placeholder="Filter: user:ann pool:a100 bert   ( / )"
          spellcheck={false}
          autocomplete="off"
          onInput={(event) => store.dispatch({ type: "filter", text: event.currentTarget.value })}
        />
      </label>
      <ConnectionMark />
      {caller && (
        <span class="caller">
          <span class="soft wide">{caller.user ? `${caller.user}, ${caller.role}` : caller.role}</span>
          {token() && (
            <button type="button" class="quiet" onClick={signOut}>
              Sign out
            </button>
          )}
        </span>
      )}
    </header>
  );
}

function Logo() {
  return (
    <svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">
      <rect class="a" x="0" y="0" width="9" height="9" rx="2" />
      <rect class="a" x="11" y="0" width="9" height="9" rx="2" />
      <rect class="b" x="0" y="11" width="9" height="9" rx="2" />
      <rect class="c" x="11" y="11" width="9" height="9" rx="2" />
    </svg>
  );
}

function ConnectionMark() {
  const mode = useModel((model) => model.mode);
  const connection = useModel((model) => model.connection);
  const now = useTicks();
  if (mode !== "live") return <span class="mark past">{mode === "playing" ? "Replay" : "Past"}</span>;
  if (connection.state === "open") {
    return (
      <span class="mark live">
        <i aria-hidden="true" /> Live
      </span>
    );
  }
  if (connection.state === "connecting" || connection.heardAt === 0) return <span class="mark" role="status">Connecting …</span>;
  return (
    <span class="mark lost" role="status" title={connection.message}>
      Lost: last seen {span((now - connection.heardAt) / 1000)} ago, trying again
    </span>
  );
}

function useTicks(): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
