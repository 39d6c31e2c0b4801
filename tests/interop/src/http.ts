// An agent that does the first handoff that waits for it, over HTTP alone (proto/README.md, section 9.5):
//
//   TOKEN=$(deed token create NAME --role writer) node built/http.js URL KEY_FILE EVIDENCE
//
// KEY_FILE is the unsealed key file of the agent (.deedbook/keys/NAME.key). The agent computes the id of each event that
// it signs, and believes that the ledger accepted the event only after it has checked the receipt.

import { readFileSync } from "node:fs";

import { keyOf } from "./ed25519.js";
import { checkHandedOn } from "./receipt.js";
import { need, newSalt, signEvents } from "./wire.js";

const attempts_max = 5;
const [url, keyFile, evidence] = process.argv.slice(2);
need(url !== undefined && keyFile !== undefined && evidence !== undefined, "usage: http.js URL KEY_FILE EVIDENCE");
const { ledger, name, seed } = JSON.parse(readFileSync(keyFile, "utf8")) as Record<string, string>;
const key = keyOf(Buffer.from(seed ?? "", "hex"));

/** Ask the server, again while it is busy: the same bytes are accepted once. */
async function call(path: string, options: RequestInit = {}): Promise<Response> {
  const headers = { authorization: `Bearer ${process.env.TOKEN}`, ...options.headers };
  for (let attempt = 1; ; attempt += 1) {
    const answer = await fetch(url + path, { ...options, headers });
    if (answer.ok) {
      return answer;
    }
    need(answer.status === 503 && attempt < attempts_max, `${path}: ${await answer.text()}`);
    await new Promise((resume) => setTimeout(resume, attempt * 200));
  }
}

const ask = async (path: string): Promise<any> => ((await (await call(path)).json()) as { data: any }).data;

async function submit(kind: string, stream: string, data: object): Promise<void> {
  const head = { ledger, kind, stream, author: name, at: new Date().toISOString(), salt: newSalt() };
  const signed = signEvents(key, [{ ...head, causes: [], data }]);
  const body = JSON.stringify(signed.envelope);
  const answer = await call("/v1/entries", { method: "POST", headers: { "content-type": "application/json" }, body });
  const [accepted] = ((await answer.json()) as { data: { accepted: { index: number; id: string }[] } }).data.accepted;
  need(accepted !== undefined && accepted.id === signed.ids[0], "the server accepted another event");
  const receipt = await (await call(`/v1/receipts/${accepted.index}`, { headers: { accept: "text/plain" } })).text();
  const proven = checkHandedOn(receipt, ledger ?? "");
  need(proven.index === accepted.index && proven.body === signed.bodies[0], "the receipt is of another event");
  console.log(`${kind} is entry ${accepted.index}`);
}

const [waiting] = (await ask(`/v1/handoffs/next?agent=${name}`)).items;
need(waiting !== undefined, `nothing waits for ${name}`);
const stream = `handoff/${waiting.id}`;
if (waiting.act === "claim") {
  await submit("handoff.claimed", stream, { lease_seconds: 3600 });
}
const handoff = await ask(`/v1/handoffs/show?id=${encodeURIComponent(waiting.id)}`);
// Here a real agent would do the work.
for (const { position } of handoff.criteria) {
  await submit("handoff.criterion_checked", stream, { position, checked: true, evidence });
}
await submit("handoff.completed", stream, { summary: `Done over HTTP: ${evidence}` });
