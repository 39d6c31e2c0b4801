// An evaluator of Tree-of-Thoughts searches, bound as `--evaluator`: does what is left of a game still make 24?
import { readFileSync } from "node:fs";
import { Bus } from "./bus.js";
import { keyOf } from "./ed25519.js";
import { decodeEntry, newSalt, signEvents } from "./wire.js";

const reaches = (left: number[]): boolean =>
  left.length < 2 ? Math.abs((left[0] ?? 0) - 24) < 1e-9 : left.some((a, i) => left.some((b, j) => {
    const rest = left.filter((_, at) => at !== i && at !== j);
    return i !== j && [a + b, a - b, a * b, a / (b || NaN)].some((made) => reaches([made, ...rest]));
  }));

function judge({ id, content }: { id: string; content: string }) {
  const left = content.split(":").pop()?.match(/-?\d+(\/\d+)?/g) ?? [];
  const parts = left.map((text) => text.split("/").map(Number));
  return { node_id: id, score: reaches(parts.map(([a = 0, b = 1]) => a / b)) ? 8 : 1, confidence: 0.9, reasoning: left.join() };
}

const { url = "", nkey = "", seed = "", ledger = "", agent = "" } = JSON.parse(readFileSync(0, "utf8")) as Record<string, string>;
const bus = await Bus.open(url, ledger, agent, nkey);
for (let page: any = { next_index: 0 }; ; ) {
  page = await bus.read("range", { start: page.next_index, kinds: ["tot.evaluate_thoughts"], wait_s: 10 });
  for (const { body, commitment } of page.entries.map(([, entry]: [number, string]) => decodeEntry(Buffer.from(entry, "base64")))) {
    const { stream, data: { task_id, payload } } = JSON.parse(body.toString());
    const data = { from: "evaluator", to: "explorer", type: "evaluation_results", task_id, payload: { evaluations: payload.candidates.map(judge) } };
    const head = { ledger, kind: "tot.evaluation_results", stream, author: agent, at: new Date().toISOString(), salt: newSalt() };
    const event = { ...head, causes: [`event:${commitment.toString("hex")}`], data };
    await bus.submit(signEvents(keyOf(Buffer.from(seed, "hex")), [event]).envelope);
  }
}
