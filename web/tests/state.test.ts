import assert from "node:assert/strict";
import { test } from "node:test";
import { EventParser } from "../src/api/sse.ts";
import type { EventView } from "../src/api/types.ts";
import { frameOf } from "../src/state/frame.ts";
import { linkOf, parseLink } from "../src/state/link.ts";
import { FIRST, mayChange, reduce } from "../src/state/model.ts";
import { Reel } from "../src/state/playback.ts";
import { type FetchEvents, findStep } from "../src/state/steps.ts";
import { aChange, aJob, aMoment } from "./builders.ts";

test("events come whole, wherever the pieces of the stream are cut", () => {
  const text = ": hello\r\nretry: 5\n\nevent: state\nid: 7\ndata: {\ndata: }\n\ndata: x\n\n";
  const whole = new EventParser().push(text);
  assert.deepEqual(whole, [{ event: "state", data: "{\n}", id: "7" }, { event: "message", data: "x", id: "7" }]);
  for (let cut = 1; cut < text.length; cut += 1) {
    const parser = new EventParser();
    assert.deepEqual([...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))], whole, `cut at ${cut}`);
  }
});

test("an address says what is shown, and is read back", () => {
  const shown = { mode: "past" as const, now: Date.parse("2026-01-01T10:02:00.5Z"), job: "a&b=1", node: "", filter: "user:ann bert" };
  const link = linkOf(shown);
  assert.deepEqual(parseLink(link), { at: shown.now, job: "a&b=1", node: "", filter: "user:ann bert", login: "" });
  assert.equal(linkOf({ ...shown, mode: "live", job: "", filter: "" }), "");
  assert.deepEqual(parseLink("#at=yesterday"), { at: null, job: "", node: "", filter: "", login: "" });
});

test("a moment in another zone is the same moment", () => {
  assert.equal(parseLink(`#at=${encodeURIComponent("2026-01-01T11:02:00+01:00")}`).at, Date.parse("2026-01-01T10:02:00Z"));
});

test("a login in the address is read, and never written", () => {
  assert.equal(parseLink("#login=vlogin_a.b").login, "vlogin_a.b");
});

test("a refused token forgets the cluster and keeps what was looked at", () => {
  const looking = { ...FIRST, access: "granted" as const, frame: frameOf(aMoment()), job: "a", filter: "x" };
  const refused = reduce(looking, { type: "refused", message: "It is not known." });
  assert.deepEqual([refused.frame, refused.caller, refused.job, refused.filter], [null, null, "a", "x"]);
});

test("changes without a state before them change nothing", () => {
  assert.equal(reduce(FIRST, { type: "changes", changes: aChange({ jobs: [aJob("a")] }) }), FIRST);
});

test("admins change all jobs, users their own, viewers none", () => {
  const caller = (role: string) => ({ user: "ann", role, warning: "" });
  assert.deepEqual(["admin", "user", "viewer", "job"].map((role) => mayChange(caller(role), "ann")), [true, true, false, false]);
  assert.deepEqual([mayChange(caller("admin"), "bob"), mayChange(caller("user"), "bob"), mayChange(null, "ann")], [true, false, false]);
});

test("a reel gives each frame once, when its time has come", () => {
  const reel = new Reel(0);
  const at = (second: number) => aChange({ at: new Date(second * 1000).toISOString() });
  reel.add([at(1), at(2), at(3)], 3_000);
  assert.equal(reel.take(500).length, 0);
  assert.equal(reel.take(2_000).length, 2);
  assert.equal(reel.take(2_500).length, 0);
  assert.equal(reel.take(9_000).length, 1);
  assert.equal(reel.until, 3_000);
});

/** A log with a plan at every tenth position, of which every hundredth resizes, and one failure at 1,234; by pages. */
const log: FetchEvents = async (types, from) => {
  const items: EventView[] = [];
  const step = "before" in from ? -1 : 1;
  let position = "before" in from ? from.before : from.after;
  for (let read = 0; read < 700 && items.length < 200 && position + step >= 1 && position + step <= 5_000; read += 1) {
    position += step;
    const type = position === 1_234 ? "job.failed" : position % 10 === 0 ? "plan.adopted" : "";
    if (!types.includes(type)) continue;
    const data = position % 100 === 0 ? { reasons: { a: { kind: "resized" } } } : {};
    items.push({ position, stream: "", type, recorded_at: new Date(position * 1000).toISOString(), actor: "", message: "", data });
  }
  return { items, last_position: position, end: 5_000 };
};

const at = (position: number) => ({ position, now: position * 1000 + 1, end: 5_000 });

test("steps lead to the next and the previous event, and never stay where they are", async () => {
  assert.equal(await findStep("decision", 1, at(4_500), log), 4_510_001);
  assert.equal(await findStep("decision", -1, at(4_500), log), 4_490_001);
  assert.equal(await findStep("resize", 1, at(4_500), log), 4_600_001);
  assert.equal(await findStep("resize", -1, at(4_500), log), 4_400_001);
  assert.equal(await findStep("failure", -1, at(4_500), log), 1_234_001);
  assert.equal(await findStep("failure", 1, at(20), log), 1_234_001);
});

test("where there is no such event, steps say so", async () => {
  assert.equal(await findStep("failure", 1, at(2_000), log), null);
  assert.equal(await findStep("failure", -1, at(1_000), log), null);
  assert.equal(await findStep("decision", 1, at(5_000), log), null);
});
