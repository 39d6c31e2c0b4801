// A receipt as it is handed on: all that checks it is in the file, but for the fingerprint of the root key.

import { sha256 } from "./merkle.js";
import { checkReceipt } from "./note.js";
import { decodeEntry, type Entry, hashOf, isSigned, need, readBase64 } from "./wire.js";

interface Evidence {
  deedbook_receipt: number;
  entry: string;
  batch: string;
  chain: [number, string][];
}

interface Body {
  ledger: string;
  kind: string;
  author: string;
  stream: string;
  data: Record<string, unknown>;
}

export interface Proven {
  index: number;
  size: number;
  ledger: string;
  author: string;
  kind: string;
  data: unknown;
  body: string;
  isErased: boolean;
}

/** The kinds that name a key of the log: nobody erases such an event, so one without its body is forged. */
const NAMES_KEY = new Set(["ledger.created", "agent.invited", "agent.registered", "checkpoint_key.rotated"]);

const bodyOf = (entry: Entry): Body => JSON.parse(entry.body.toString("utf8")) as Body;

export function hashesOf(joined: Buffer): Buffer[] {
  return Array.from({ length: joined.length / 32 }, (_, at) => joined.subarray(at * 32, at * 32 + 32));
}

/** Return the vkey of checkpoints of a size: entry 0 names it, and root, whose own key may have been replaced, later ones. */
function vkeyOf(chain: Map<number, Entry>, size: number, fingerprint: string): { vkey: string; ledger: string } {
  const first = chain.get(0);
  need(first !== undefined, "the receipt lacks entry 0");
  const created = bodyOf(first);
  need(created.kind === "ledger.created" && created.data.root === first.key.toString("hex"), "entry 0 makes no ledger");
  need(fingerprint.length >= 32 && hashOf(first.key).startsWith(fingerprint), "the root key has another fingerprint");
  let [root, checkpoint] = [first.key.toString("hex"), String(created.data.checkpoint_key)];
  for (const [index, entry] of [...chain].sort(([left], [right]) => left - right)) {
    const start = index - entry.batchIndex;
    const batch = Array.from({ length: entry.batchSize }, (_, at) => chain.get(start + at));
    need(batch.every((one) => one !== undefined), `the receipt lacks the batch of entry ${index}`);
    need(isSigned(entry, batch), `the signature of entry ${index} does not fit`);
    const { kind, author, stream, data } = bodyOf(entry);
    const namesKey = NAMES_KEY.has(kind) || (kind === "key.rotated" && data.agent === "root");
    need(entry.remnant === null || !namesKey, `entry ${index} names a key of the log, and its body is missing`);
    if (index === 0 || index >= size || author !== "root" || !["agent/root", "ledger"].includes(stream)) {
      continue;
    }
    need(entry.key.toString("hex") === root, `entry ${index} is not signed by the root key of then`);
    if (kind === "key.rotated") {
      root = String(data.key);
    } else if (kind === "checkpoint_key.rotated") {
      checkpoint = String(data.key);
    }
  }
  const [origin, material] = [String(created.data.origin), Buffer.from(`01${checkpoint}`, "hex")];
  const id = sha256(Buffer.from(`${origin}\n`), material).subarray(0, 4).toString("hex");
  return { vkey: `${origin}+${id}+${material.toString("base64")}`, ledger: hashOf(first.key).slice(0, 32) };
}

export function checkHandedOn(receipt: string, fingerprint: string): Proven {
  const extra = receipt.split("\n").find((line) => line.startsWith("extra "));
  need(extra !== undefined, "the receipt carries nothing that checks it");
  const evidence = JSON.parse(readBase64(extra.slice("extra ".length)).toString("utf8")) as Evidence;
  need(evidence.deedbook_receipt === 1, "the receipt is of an unknown form");
  const chain = new Map(evidence.chain.map(([index, data]) => [index, decodeEntry(readBase64(data))]));
  const size = Number(receipt.slice(receipt.indexOf("\n\n") + 2).split("\n")[1]);
  const { vkey, ledger } = vkeyOf(chain, size, fingerprint);
  const data = readBase64(evidence.entry);
  const { index, checkpoint } = checkReceipt(receipt, data, vkey);
  need(checkpoint.size === size, "the checkpoint is of another size");
  const entry = decodeEntry(data);
  need(isSigned(entry, hashesOf(Buffer.from(evidence.batch, "base64"))), "the entry's signature does not fit");
  const body = bodyOf(entry);
  need(body.ledger === ledger, "the entry is of another ledger");
  const { author, kind, data: content } = body;
  const isErased = entry.remnant !== null; // then the receipt proves the id, and not the fields
  return { index, size, ledger, author, kind, data: content, body: entry.body.toString("utf8"), isErased };
}
