// An exported bundle, unpacked: its checkpoint, that every entry is under it, signed by a key registered before it, and the
// next of its stream and of authority.
// What a bundle's rules say of who may do what is not replayed here: `deed verify --bundle` and verify.py do that.

import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { leafHash, treeRoot } from "./merkle.js";
import { checkReceipt, keyOfVkey, openCheckpoint } from "./note.js";
import { hashesOf } from "./receipt.js";
import { decodeEntry, type Entry, hashOf, isSigned, joinEntry, need } from "./wire.js";

export interface Verdict {
  size: number;
  entries: number;
  fingerprint: string;
  ids: number;
  erased: number[];
}

interface Body {
  ledger: string;
  kind: string;
  stream: string;
  author: string;
  data: Record<string, unknown>;
}

const AUTHORITY = new Set([
  ...["ledger.created", "ledger.history_reset", "ledger.clock_set", "agent.invited"],
  ...["agent.invitation_revoked", "agent.registered", "agent.removed", "role.granted", "role.revoked"],
  ...["key.delegated", "key.rotated", "key.revoked", "key.compromised", "checkpoint_key.rotated"],
  ...["entry.redaction_proposed", "entry.redacted"],
]);
const REGISTERING = new Set(["agent.registered", "key.delegated", "key.rotated"]);
const ENDING = new Set(["key.revoked", "key.compromised"]);

/** The keys that may sign, and how many entries each stream and authority have: what an entry says of both must fit. */
class Replay {
  private readonly versions = new Map<string, number>();
  private authority = 0;
  private readonly owner = new Map<string, string>();
  private readonly identity = new Map<string, string>();
  private readonly ended = new Set<string>();
  private ledger = "";
  private readonly checkpoints = new Map<string, string>();

  /** The keys that may sign a checkpoint after all that was learnt: one a node. */
  get signers(): string[] {
    return [...this.checkpoints.values()];
  }

  /** The erased entries that no redaction names so far: the id of the event, and the digest of the remnant. */
  private readonly unnamed = new Map<number, string>();
  private readonly proposals = new Map<number, { author: string; named: string }>();
  readonly erased: number[] = [];

  constructor(private readonly erasable: Set<string>) {}

  /** Check that a redaction names each erased entry. */
  end(): void {
    need(this.unnamed.size === 0, `no redaction names what is left of entry ${[...this.unnamed.keys()][0]}`);
  }

  /** Root redacts alone, others what somebody else proposed. Who is a human is a rule, and not replayed here. */
  private redact(entry: Entry, index: number, { kind, author, data }: Body): void {
    if (entry.remnant !== null) {
      need(this.erasable.has(kind) && !(kind === "key.rotated" && data.agent === "root"), `a ${kind} is never erased`);
      const digest = createHash("sha256").update(entry.remnant).digest("hex");
      this.unnamed.set(index, `event:${entry.commitment.toString("hex")} sha256:${digest}`);
      this.erased.push(index);
    }
    const [at, named] = [Number(data.entry), `${data.event} ${data.remnant}`];
    if (kind === "entry.redaction_proposed") {
      this.proposals.set(at, { author, named });
    } else if (kind === "entry.redacted") {
      const proposal = this.proposals.get(at);
      const isAllowed = author === "root" || (proposal?.named === named && proposal.author !== author);
      need(isAllowed, `entry ${index} redacts what nobody else proposed`);
      if (this.unnamed.get(at) === named) {
        this.unnamed.delete(at);
      }
    }
  }

  learn(entry: Entry, index: number): void {
    const body = JSON.parse(entry.body.toString("utf8")) as Body;
    const { kind, author, data } = body;
    this.redact(entry, index, body);
    const signing = entry.key.toString("hex");
    if (this.ledger === "") {
      need(kind === "ledger.created" && data.root === signing, "entry 0 is not signed by the root key it names");
      this.ledger = hashOf(entry.key).slice(0, 32);
      this.register("root", String(data.root));
      this.register("node", String(data.node_key));
      this.checkpoints.set("node", String(data.checkpoint_key));
    } else if (kind === "checkpoint_key.rotated") {
      need(author === "root", "the key of checkpoints is replaced by somebody who is not root");
      this.checkpoints.set("node", String(data.key));
    } else if (kind === "agent.registered" && data.token_proof !== undefined) {
      need(author === data.name && signing === data.key, "who was invited does not register itself");
      this.register(author, signing);
    }
    const version = (this.versions.get(body.stream) ?? 0) + 1;
    this.versions.set(body.stream, version);
    this.authority += AUTHORITY.has(kind) ? 1 : 0;
    need(entry.streamVersion === version, `an entry before the ${version}th of ${body.stream} is left out`);
    need(entry.authorityVersion === this.authority, "an entry of authority is left out");
    need(body.ledger === this.ledger, "the event is for another ledger");
    need(this.owner.get(signing) === author && !this.ended.has(signing), `the key is not one of ${author}`);
    const name = String(data.agent ?? data.name ?? author);
    if (kind === "agent.registered" && data.checkpoint_key !== undefined) {
      this.checkpoints.set(name, String(data.checkpoint_key));
    }
    if (REGISTERING.has(kind) && data.token_proof === undefined) {
      const old = this.identity.get(name);
      if (kind === "key.rotated" && old !== undefined) {
        this.ended.add(old);
      }
      this.register(name, String(data.key), kind !== "key.delegated");
    } else if (ENDING.has(kind)) {
      this.ended.add(String(data.key));
    } else if (kind === "agent.removed") {
      this.ended.add(this.identity.get(name) ?? "");
      this.checkpoints.delete(name);
    }
  }

  private register(name: string, key: string, isIdentity = true): void {
    need(!this.owner.has(key), "a key is registered twice");
    this.owner.set(key, name);
    if (isIdentity) {
      this.identity.set(name, key);
    }
  }
}

/** C2SP tlog-tiles: the path of a tile. */
function tilePath(level: string, number: number, width: number): string {
  const digits = String(number);
  const parts = digits.padStart(Math.ceil(digits.length / 3) * 3, "0").match(/.{3}/g) ?? [];
  const path = parts.map((part, at) => (at < parts.length - 1 ? `x${part}` : part)).join("/");
  return `tile/${level}/${path}${width === 256 ? "" : `.p/${width}`}`;
}

/** The items of a tile of entries or bodies, each after its length. */
function itemsOf(folder: string, part: string, number: number, width: number): Buffer[] {
  const data = readFileSync(join(folder, tilePath(part, number, width)));
  const items: Buffer[] = [];
  let at = 0;
  while (items.length < width) {
    const end = at + 2 + data.readUInt16BE(at);
    need(end <= data.length, `an item ends beyond its tile of ${part}`);
    items.push(data.subarray(at + 2, end));
    at = end;
  }
  need(at === data.length, `there are bytes after the last item of a tile of ${part}`);
  return items;
}

function entriesOfLog(folder: string, size: number): Entry[] {
  const entries: Entry[] = [];
  for (let number = 0; number * 256 < size; number += 1) {
    const width = Math.min(256, size - number * 256);
    const hashes = readFileSync(join(folder, tilePath("0", number, width)));
    const bodies = itemsOf(folder, "bodies", number, width);
    itemsOf(folder, "entries", number, width).forEach((bare, at) => {
      need(leafHash(bare).equals(hashes.subarray(at * 32, at * 32 + 32)), "an entry is not the one of its tile");
      entries.push(joinEntry(bare, bodies[at] ?? Buffer.alloc(0)));
    });
  }
  return entries;
}

export function checkBundle(folder: string): Verdict {
  const text = (name: string): string => readFileSync(join(folder, name), "utf8");
  const manifest = JSON.parse(text("manifest.json")) as { content: string; indexes: number[]; size: number };
  const vkey = signerOf(text("checkpoint"), text("keys/checkpoint.vkey").trimEnd().split("\n"));
  const signer = keyOfVkey(vkey).publicKey.toString("hex");
  const checkpoint = openCheckpoint(text("checkpoint"), vkey);
  need(checkpoint.size === manifest.size, "checkpoint and manifest differ");
  const { erasable } = JSON.parse(text("schemas.json")) as { erasable: string[] };
  const replay = new Replay(new Set(erasable));
  const ids = new Set<string>();
  let fingerprint = "";
  const learn = (entry: Entry, index: number): void => {
    replay.learn(entry, index);
    fingerprint ||= hashOf(entry.key);
    ids.add(entry.commitment.toString("hex"));
  };
  if (manifest.content === "stream") {
    for (const index of manifest.indexes) {
      const stem = join(folder, "entries", String(index).padStart(20, "0"));
      const data = readFileSync(`${stem}.entry`);
      const receipt = readFileSync(`${stem}.tlog-proof`, "utf8");
      need(checkReceipt(receipt, data, vkey).index === index, "a proof is of another index");
      const entry = decodeEntry(data);
      need(isSigned(entry, pathOf(receipt)), `the signature of entry ${index} does not fit`);
      learn(entry, index);
    }
    replay.end();
    need(replay.signers.includes(signer), "the checkpoint is signed by a key of no node");
    return { size: checkpoint.size, entries: manifest.indexes.length, fingerprint, ids: ids.size, erased: replay.erased };
  }
  need(existsSync(join(folder, "tile")), "the bundle holds no log");
  const entries = entriesOfLog(folder, checkpoint.size);
  need(treeRoot(entries.map(({ leaf }) => leaf)).equals(checkpoint.root), "the entries do not lead to the checkpoint's root");
  entries.forEach((entry, index) => {
    const start = index - entry.batchIndex;
    need(isSigned(entry, entries.slice(start, start + entry.batchSize)), `the signature of entry ${index} does not fit`);
    learn(entry, index);
  });
  replay.end();
  need(replay.signers.includes(signer), "the checkpoint is signed by a key of no node");
  return { size: checkpoint.size, entries: entries.length, fingerprint, ids: ids.size, erased: replay.erased };
}

/** The one of several nodes' keys that signed a note. */
function signerOf(note: string, vkeys: string[]): string {
  const names = (vkey: string): boolean => {
    const id = Buffer.from(vkey.split("+")[1] ?? "", "hex");
    return note.split("\n").some((line) => line.startsWith("— ") && Buffer.from(line.split(" ")[2] ?? "", "base64").subarray(0, 4).equals(id));
  };
  return vkeys.find(names) ?? vkeys[0] ?? "";
}

/** The path of an event within its batch, which the export puts into the proof's extra data. */
function pathOf(receipt: string): Buffer[] {
  const line = receipt.split("\n").find((one) => one.startsWith("extra "));
  return hashesOf(Buffer.from((line ?? "extra ").slice("extra ".length), "base64"));
}
