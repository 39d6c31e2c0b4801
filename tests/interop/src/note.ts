// C2SP signed-note, tlog-checkpoint and tlog-proof.

import { verify } from "./ed25519.js";
import { rootOfPath, sha256 } from "./merkle.js";
import { decodeEntry, need, readBase64 } from "./wire.js";

export interface Checkpoint {
  origin: string;
  size: number;
  root: Buffer;
}

interface NoteKey {
  name: string;
  id: Buffer;
  publicKey: Buffer;
}

export function keyOfVkey(vkey: string): NoteKey {
  const [name = "", id = "", ...rest] = vkey.split("+");
  const material = readBase64(rest.join("+"));
  need(material.length === 33 && material[0] === 1, "the vkey is not of an Ed25519 key");
  const wanted = sha256(Buffer.from(`${name}\n`), material).subarray(0, 4);
  need(wanted.toString("hex") === id, "the vkey's id does not fit its key");
  return { name, id: wanted, publicKey: material.subarray(1) };
}

/** Return what the key signed; lines of other keys are passed over, one that claims to be ours and is not spoils it. */
export function openCheckpoint(note: string, vkey: string): Checkpoint {
  const key = keyOfVkey(vkey);
  const end = note.lastIndexOf("\n\n");
  need(end > 0 && note.endsWith("\n"), "this is no note");
  const text = note.slice(0, end + 1);
  const ours = note.slice(end + 2, -1).split("\n").flatMap((line) => {
    const [dash, name, blob, ...more] = line.split(" ");
    need(dash === "—" && name !== undefined && blob !== undefined && more.length === 0, "a signature line is malformed");
    const raw = readBase64(blob);
    return name === key.name && raw.subarray(0, 4).equals(key.id) ? [raw.subarray(4)] : [];
  });
  need(ours.length > 0, "the note is not signed by this key");
  need(ours.every((signature) => verify(key.publicKey, Buffer.from(text), signature)), "the note's signature does not fit");
  const [origin = "", size = "", root = ""] = text.split("\n");
  need(origin === key.name, "the checkpoint is of another origin");
  need(/^(0|[1-9][0-9]*)$/.test(size), "the checkpoint's size is no number");
  return { origin, size: Number(size), root: readBase64(root) };
}

/** Return the index at which the entry is proven to be, and the checkpoint under which it is. */
export function checkReceipt(receipt: string, entry: Buffer, vkey: string): { index: number; checkpoint: Checkpoint } {
  const end = receipt.indexOf("\n\n");
  need(end > 0, "this is no receipt");
  const lines = receipt.slice(0, end).split("\n");
  need(lines.shift() === "c2sp.org/tlog-proof@v1", "the receipt is of an unknown form");
  if (lines[0]?.startsWith("extra ")) {
    lines.shift();
  }
  const line = lines.shift() ?? "";
  need(/^index (0|[1-9][0-9]*)$/.test(line), "the receipt has no index");
  const index = Number(line.slice("index ".length));
  const checkpoint = openCheckpoint(receipt.slice(end + 2), vkey);
  const root = rootOfPath(decodeEntry(entry).leaf, index, checkpoint.size, lines.map(readBase64));
  need(root?.equals(checkpoint.root), "the path does not prove this entry");
  return { index, checkpoint };
}
