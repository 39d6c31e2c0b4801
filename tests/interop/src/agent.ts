// What the tests ask: `node built/agent.js VERB`, its arguments as one JSON object on standard input, one as the answer.

import { readFileSync } from "node:fs";

import { checkBundle } from "./bundle.js";
import { Bus } from "./bus.js";
import { keyOf, verify, verifyByOpenSsl } from "./ed25519.js";
import { checkReceipt } from "./note.js";
import { checkHandedOn } from "./receipt.js";
import { type Cast, type Event, Ledger, type Table } from "./rules.js";
import { canonical, decodeEntry, hashOf, possession, signEvents } from "./wire.js";

const hex = (text: string): Buffer => Buffer.from(text, "hex");

/** What a check answers: what it found, or why it refuses. */
function checked<T>(check: () => T): { answer: T } | { refused: string } {
  try {
    return { answer: check() };
  } catch (error) {
    return { refused: String(error) };
  }
}

const verbs: Record<string, (given: any) => unknown> = {
  sign: ({ seed, events }: { seed: string; events: unknown[] }) => signEvents(keyOf(hex(seed)), events),
  canonical: ({ values }: { values: unknown[] }) => ({ texts: values.map(canonical) }),
  possess: ({ keys }: { keys: { seed: string; ledger: string; agent: string }[] }) => ({
    keys: keys.map(({ seed, ledger, agent }) => possession(keyOf(hex(seed)), ledger, agent)),
  }),
  decode: ({ entries }: { entries: string[] }) => ({
    entries: entries.map((entry) =>
      checked(() => {
        const { commitment, leaf, body, remnant, key, signature, ...numbers } = decodeEntry(hex(entry));
        const hashes = { commitment: commitment.toString("hex"), leaf: leaf.toString("hex") };
        return { body: (remnant ?? body).toString(), key: key.toString("hex"), signature: signature.toString("hex"), ...hashes, ...numbers };
      }),
    ),
  }),
  hash: ({ texts }: { texts: string[] }) => ({ hashes: texts.map((text) => hashOf(Buffer.from(text))) }),
  verify: ({ cases }: { cases: [string, string, string][] }) => ({
    verdicts: cases.map(([key, message, signature]) => verify(hex(key), hex(message), hex(signature))),
    openssl: cases.map(([key, message, signature]) => {
      const verdict = checked(() => verifyByOpenSsl(hex(key), hex(message), hex(signature)));
      return "answer" in verdict && verdict.answer;
    }),
  }),
  receipts: ({ cases }: { cases: { receipt: string; entry: string; vkey: string }[] }) => ({
    receipts: cases.map(({ receipt, entry, vkey }) =>
      checked(() => {
        const { index, checkpoint } = checkReceipt(receipt, hex(entry), vkey);
        return { index, origin: checkpoint.origin, size: checkpoint.size, root: checkpoint.root.toString("hex") };
      }),
    ),
  }),
  handedOn: ({ cases }: { cases: [string, string][] }) => ({
    receipts: cases.map(([receipt, fingerprint]) => checked(() => checkHandedOn(receipt, fingerprint))),
  }),
  bundles: ({ folders }: { folders: string[] }) => ({ bundles: folders.map((folder) => checked(() => checkBundle(folder))) }),
  decide: ({ tables, cases }: { tables: Record<string, Table>; cases: { cast: Cast; events: Event[] }[] }) => ({
    outcomes: cases.map(({ cast, events }) => {
      const ledger = new Ledger(tables, cast);
      const last = events.at(-1)!;
      const codes = events.slice(0, -1).map((event) => ledger.decide(event));
      const { name } = ledger.at(last.stream, last.accepted_ms);
      return { codes, before: name, code: ledger.decide(last), after: ledger.at(last.stream, last.accepted_ms).name };
    }),
  }),
  async work({ url, nkey, seed, ledger, agent, bodies }: Record<string, string> & { bodies: unknown[] }) {
    const bus = await Bus.open(url ?? "", ledger ?? "", agent ?? "", nkey ?? "");
    try {
      const { envelope, ids } = signEvents(keyOf(hex(seed ?? "")), bodies);
      const submitted = await bus.submit(envelope);
      const repeated = await bus.submit(envelope);
      const { accepted } = submitted as { accepted?: { index: number }[] };
      const proofs = [];
      for (const { index } of accepted ?? []) {
        const { receipt } = (await bus.read("proof", { index })) as { receipt: string };
        const { entry } = (await bus.read("entry", { index })) as { entry: string };
        proofs.push({ receipt, entry: Buffer.from(entry, "base64").toString("hex") });
      }
      return { ids, submitted, repeated, head: await bus.read("head"), proofs };
    } finally {
      await bus.close();
    }
  },
};

const verb = verbs[process.argv[2] ?? ""];
if (verb === undefined) {
  throw new Error(`a verb is one of ${Object.keys(verbs).join(", ")}`);
}
process.stdout.write(`${JSON.stringify(await verb(JSON.parse(readFileSync(0, "utf8"))))}\n`);
