// Bodies, signatures, ids and entries (proto/README.md, sections 1 to 6).

import { randomBytes } from "node:crypto";

import { blake3 } from "@noble/hashes/blake3.js";

import { type Key, sign, verify } from "./ed25519.js";
import { leafHash, rootOfPath, treeRoot } from "./merkle.js";

const EVENT_TYPE = "application/vnd.deedbook.event.v1+json";
const BATCH_TYPE = "application/vnd.deedbook.batch.v1";
const POSSESSION_TYPE = "application/vnd.deedbook.possession.v1";

export function need(condition: unknown, message: string): asserts condition {
  if (!condition) {
    throw new Error(message);
  }
}

/** Base64 in its one form. */
export function readBase64(text: string): Buffer {
  const raw = Buffer.from(text, "base64");
  need(text !== "" && raw.toString("base64") === text, "base64 is not in its one form");
  return raw;
}

export const hashOf = (data: Uint8Array): string => Buffer.from(blake3(data)).toString("hex");

/** RFC 8785: JavaScript's own number and text forms, and its order of keys, are the canonical ones. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) {
    return `[${value.map(canonical).join(",")}]`;
  }
  if (value !== null && typeof value === "object") {
    const fields = Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1));
    return `{${fields.map(([name, content]) => `${JSON.stringify(name)}:${canonical(content)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

export function pae(type: string, body: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`DSSEv1 ${Buffer.byteLength(type)} ${type} ${body.length} `), body]);
}

/** What stands for a body in its signature, its id and the tree: the RFC 6962 leaf hash of its PAE. */
export const commitmentTo = (body: Buffer): Buffer => leafHash(pae(EVENT_TYPE, body));

/** What the signature of a submission covers: the number of its events, and the root over the commitments to them. */
function payloadOf(size: number, root: Buffer): Buffer {
  const count = Buffer.alloc(8);
  count.writeBigUInt64BE(BigInt(size));
  return Buffer.concat([count, root]);
}

export interface Envelope {
  payloadType: string;
  payload: string;
  signatures: { keyid: string; sig: string }[];
  bodies: string[];
}

export interface Signed {
  bodies: string[];
  ids: string[];
  signature: string;
  envelope: Envelope;
}

/** The salt of a body, which each event has for itself. */
export const newSalt = (): string => randomBytes(16).toString("base64url");

/** A submission of events as DSSE JSON. */
export function signEvents(key: Key, events: unknown[]): Signed {
  const bodies = events.map((event) => Buffer.from(canonical(event)));
  const commitments = bodies.map(commitmentTo);
  const payload = payloadOf(bodies.length, treeRoot(commitments));
  const signature = sign(key, pae(BATCH_TYPE, payload));
  const envelope = {
    payloadType: BATCH_TYPE,
    payload: payload.toString("base64"),
    signatures: [{ keyid: `ed25519:${key.publicKey.toString("hex")}`, sig: signature.toString("base64") }],
    bodies: bodies.map((body) => body.toString("base64")),
  };
  const ids = commitments.map((commitment) => `event:${commitment.toString("hex")}`);
  return { bodies: bodies.map(String), ids, signature: signature.toString("hex"), envelope };
}

export function possession(key: Key, ledger: string, agent: string): { public: string; proof: string } {
  const publicHex = key.publicKey.toString("hex");
  const proof = sign(key, pae(POSSESSION_TYPE, Buffer.from(`${ledger}\n${agent}\n${publicHex}`)));
  return { public: publicHex, proof: proof.toString("hex") };
}

/** A stored event. If its body was erased, `remnant` is what the entry holds, and `body` the body without its texts in there. */
export interface Entry {
  commitment: Buffer;
  leaf: Buffer;
  body: Buffer;
  remnant: Buffer | null;
  key: Buffer;
  signature: Buffer;
  batchIndex: number;
  batchSize: number;
  acceptedMs: number;
  streamVersion: number;
  authorityVersion: number;
}

class Reader {
  at = 0;

  constructor(private readonly data: Buffer) {}

  take(size: number): Buffer {
    need(this.at + size <= this.data.length, "the entry ends too soon");
    this.at += size;
    return this.data.subarray(this.at - size, this.at);
  }

  /** A msgpack unsigned integer in its shortest form. */
  number(): number {
    const first = this.take(1).readUInt8();
    if (first < 0x80) {
      return first;
    }
    need(first >= 0xcc && first <= 0xcf, "a number was expected");
    const size = 1 << (first - 0xcc);
    const value = BigInt(`0x${this.take(size).toString("hex")}`);
    need(value >= (size === 1 ? 0x80n : 1n << BigInt(4 * size)), "a number is not in its shortest form");
    need(value <= BigInt(Number.MAX_SAFE_INTEGER), "a number is too large");
    return Number(value);
  }

  /** msgpack bytes in their shortest form. */
  bytes(): Buffer {
    const first = this.take(1).readUInt8();
    need(first === 0xc4 || first === 0xc5, "bytes were expected");
    const size = first === 0xc4 ? this.take(1).readUInt8() : this.take(2).readUInt16BE();
    need(first === 0xc4 || size > 0xff, "bytes are not in their shortest form");
    return this.take(size);
  }

  end(): void {
    need(this.at === this.data.length, "there are bytes after the entry");
  }
}

const REMNANT = /^\{"redacted":"event:([0-9a-f]{64})"(?:,"version":"sha256:[0-9a-f]{64}")?,"body":(\{.*\})\}$/s;

/** The commitment to what an entry holds, a body or the remnant of one, and the body. */
function readStored(stored: Buffer): { commitment: Buffer; body: Buffer; remnant: Buffer | null } {
  const text = stored.toString("utf8");
  if (!text.startsWith('{"redacted":"event:')) {
    return { commitment: commitmentTo(stored), body: stored, remnant: null };
  }
  const [, digits, body] = REMNANT.exec(text) ?? [];
  need(digits !== undefined && body !== undefined, "a remnant is not in its one encoding");
  return { commitment: Buffer.from(digits, "hex"), body: Buffer.from(body), remnant: stored };
}

export function decodeEntry(data: Buffer): Entry {
  need(data.length <= 49_152, "the entry is too large");
  const reader = new Reader(data);
  need(reader.take(1).readUInt8() === 0x9a, "the entry is no array of ten");
  need(reader.number() === 1, "the entry is of an unknown version");
  const start = reader.at;
  const stored = reader.bytes();
  const end = reader.at;
  const key = reader.bytes();
  need(reader.number() === 1, "the signature is of an unknown algorithm");
  const signature = reader.bytes();
  const [batchIndex, batchSize, acceptedMs] = [reader.number(), reader.number(), reader.number()];
  const [streamVersion, authorityVersion] = [reader.number(), reader.number()];
  reader.end();
  need(key.length === 32 && signature.length === 64, "key or signature has the wrong length");
  need(batchIndex < batchSize && batchSize <= 256, "its place in the batch is impossible");
  need(streamVersion > 0 && authorityVersion > 0, "its place in its stream or among authority is impossible");
  const { commitment, ...content } = readStored(stored);
  const leaf = leafHash(Buffer.concat([data.subarray(0, start), Buffer.from([0xc4, 32]), commitment, data.subarray(end)]));
  const added = { batchIndex, batchSize, acceptedMs, streamVersion, authorityVersion };
  return { commitment, leaf, ...content, key, signature, ...added };
}

/** An entry from its bare form and its body or remnant, whose commitment must be the one there. */
export function joinEntry(bare: Buffer, stored: Buffer): Entry {
  const form = decodeEntry(bare);
  const content = readStored(stored);
  need(form.body.equals(content.commitment), "a body is not the one of its entry");
  return { ...form, ...content, leaf: leafHash(bare) };
}

/** Check an event's signature, which covers its batch: by its path there, or by all entries of the batch. */
export function isSigned(entry: Entry, batch: Entry[] | Buffer[]): boolean {
  const hashes = batch.map((one) => (Buffer.isBuffer(one) ? one : one.commitment));
  const isPath = batch.every((one) => Buffer.isBuffer(one));
  const root = isPath ? rootOfPath(entry.commitment, entry.batchIndex, entry.batchSize, hashes) : treeRoot(hashes);
  return root !== null && verify(entry.key, pae(BATCH_TYPE, payloadOf(entry.batchSize, root)), entry.signature);
}
