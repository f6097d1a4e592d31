// Asks for a token, which stays in this tab.

import { useState } from "preact/hooks";
import { signIn } from "../state/control.ts";
import { useModel } from "../state/store.ts";

export function Login() {
  const refusal = useModel((model) => model.refusal);
  const [text, setText] = useState("");
  const [isAsking, setAsking] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setAsking(true);
    await signIn(text);
    setAsking(false);
  };
  return (
    <main class="login">
      <form onSubmit={submit}>
        <h1>voda</h1>
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autocomplete="off"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          aria-describedby="token-help"
          aria-invalid={refusal !== ""}
        />
        {refusal && (
          <p class="bad" role="alert">
            {refusal}
          </p>
        )}
        <button type="submit" disabled={isAsking || text.trim() === ""}>
          Sign in
        </button>
        <p id="token-help" class="soft">
          Yours is what <code>voda token create</code> printed; on your own machine, the content of <code>admin.token</code> in the
          folder of <code>voda up</code>. It is forgotten when you close this tab.
        </p>
      </form>
    </main>
  );
}
