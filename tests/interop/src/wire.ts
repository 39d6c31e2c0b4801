// Bodies, signatures, ids and entries (proto/README.md, sections 1 to 6).

import { blake3 } from "@noble/hashes/blake3.js";

import { type Key, sign, verify } from "./ed25519.js";
import { leafHash, rootOfPath, treeRoot } from "./merkle.js";

export const EVENT_TYPE = "application/vnd.deedbook.event.v1+json";
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

export interface Envelope {
  payloadType: string;
  payload: string;
  signatures: { keyid: string; sig: string }[];
}

export interface SignedEvent {
  body: string;
  pae: string;
  id: string;
  signature: string;
  envelope: Envelope;
}

export function signEvent(key: Key, event: unknown): SignedEvent {
  const body = Buffer.from(canonical(event));
  const signed = pae(EVENT_TYPE, body);
  const signature = sign(key, signed);
  const envelope = {
    payloadType: EVENT_TYPE,
    payload: body.toString("base64"),
    signatures: [{ keyid: `ed25519:${key.publicKey.toString("hex")}`, sig: signature.toString("base64") }],
  };
  const id = `blake3:${hashOf(signed)}`;
  return { body: body.toString(), pae: signed.toString("hex"), id, signature: signature.toString("hex"), envelope };
}

export function possession(key: Key, ledger: string, agent: string): { public: string; proof: string } {
  const publicHex = key.publicKey.toString("hex");
  const proof = sign(key, pae(POSSESSION_TYPE, Buffer.from(`${ledger}\n${agent}\n${publicHex}`)));
  return { public: publicHex, proof: proof.toString("hex") };
}

/** The bytes that a batch signature is over. */
export function batchPae(size: number, root: Buffer): Buffer {
  const count = Buffer.alloc(8);
  count.writeBigUInt64BE(BigInt(size));
  return pae(BATCH_TYPE, Buffer.concat([count, root]));
}

export interface Entry {
  body: Buffer;
  key: Buffer;
  signature: Buffer;
  batchIndex: number;
  batchSize: number;
  acceptedMs: number;
  streamVersion: number;
  authorityVersion: number;
}

class Reader {
  private at = 0;

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

export function decodeEntry(data: Buffer): Entry {
  need(data.length <= 49_152, "the entry is too large");
  const reader = new Reader(data);
  need(reader.take(1).readUInt8() === 0x9a, "the entry is no array of ten");
  need(reader.number() === 1, "the entry is of an unknown version");
  const [body, key] = [reader.bytes(), reader.bytes()];
  need(reader.number() === 1, "the signature is of an unknown algorithm");
  const signature = reader.bytes();
  const [batchIndex, batchSize, acceptedMs] = [reader.number(), reader.number(), reader.number()];
  const [streamVersion, authorityVersion] = [reader.number(), reader.number()];
  reader.end();
  need(key.length === 32 && signature.length === 64, "key or signature has the wrong length");
  need(batchIndex < batchSize && batchSize <= 256, "its place in the batch is impossible");
  need(streamVersion > 0 && authorityVersion > 0, "its place in its stream or among authority is impossible");
  return { body, key, signature, batchIndex, batchSize, acceptedMs, streamVersion, authorityVersion };
}

/** Check an event's signature: its own, or that of its batch, by its path or by the others of the batch. */
export function isSigned(entry: Entry, batch: Entry[] | Buffer[]): boolean {
  const signed = pae(EVENT_TYPE, entry.body);
  if (entry.batchSize === 1) {
    return verify(entry.key, signed, entry.signature);
  }
  const leaves = batch.map((one) => (Buffer.isBuffer(one) ? one : leafHash(pae(EVENT_TYPE, one.body))));
  const isPath = batch.every((one) => Buffer.isBuffer(one));
  const root = isPath ? rootOfPath(leafHash(signed), entry.batchIndex, entry.batchSize, leaves) : treeRoot(leaves);
  return root !== null && verify(entry.key, batchPae(entry.batchSize, root), entry.signature);
}
