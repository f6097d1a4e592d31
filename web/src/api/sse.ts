// Server-sent events, read from a fetched body: EventSource sends no Authorization.

export interface ServerEvent {
  event: string;
  data: string;
  id: string;
}

/** Splits text into events, as the HTML standard says (without `retry`, which the page does not heed). */
export class EventParser {
  private rest = "";
  private event = "";
  private data: string[] = [];
  private id = "";

  /** Return the events that a piece of the stream completes; pieces may end anywhere. */
  push(piece: string): ServerEvent[] {
    const lines = (this.rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    const found: ServerEvent[] = [];
    for (const line of lines) {
      if (line !== "") this.take(line);
      else if (this.data.length > 0) found.push(this.complete());
      else this.event = "";
    }
    return found;
  }

  private take(line: string): void {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.event = value;
    else if (field === "data") this.data.push(value);
    else if (field === "id") this.id = value;
  }

  private complete(): ServerEvent {
    const done = { event: this.event || "message", data: this.data.join("\n"), id: this.id };
    this.event = "";
    this.data = [];
    return done;
  }
}

/** Yield the events of a response until it ends; `heard` is called for every piece, heartbeats included. */
export async function* eventsOf(response: Response, heard: () => void): AsyncGenerator<ServerEvent> {
  if (!response.body) return;
  const parser = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      yield* parser.push(value);
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
