// Computes the proof on this page again (proto/README.md §2, §5, §6, §7) from the page's own text: the hashes as they
// are drawn, the entry's bytes and the signed note. It asks the server for nothing, and writes nothing but its results and
// a long text, which the page has only within the entry's bytes.
"use strict";

const proof = document.getElementById("proof"), utf8 = new TextEncoder();
const isHashable = Boolean(globalThis.crypto?.subtle);  // browsers have it over https and on this machine only
const text = (id) => document.getElementById(id).textContent;
const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
const unhex = (digits) => Uint8Array.from(digits.match(/../g), (pair) => parseInt(pair, 16));
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const join = (...parts) => new Uint8Array(parts.flatMap((part) => Array.from(part)));
const sha256 = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", join(...parts)));
const leafHash = (bytes) => sha256([0], bytes);
const pae = (type, body) => join(utf8.encode(`DSSEv1 ${type.length} ${type} ${body.length} `), body);
const u64 = (number) => { const bytes = new Uint8Array(8); new DataView(bytes.buffer).setBigUint64(0, BigInt(number)); return bytes; };

// An entry is a msgpack array of ten integers and byte strings. The log hashes it with the commitment in place of the body.
function itemsOf(bytes) {
  const view = new DataView(bytes.buffer), items = [], ends = [];
  let at = 1;
  const number = (width) => { const value = width === 8 ? Number(view.getBigUint64(at)) : view[`getUint${8 * width}`](at); at += width; return value; };
  while (at < bytes.length) {
    const head = number(1), isBytes = head >= 0xc4 && head <= 0xc6;
    const value = head < 0x80 ? head : number(1 << (head - (isBytes ? 0xc4 : 0xcc)));
    items.push(isBytes ? bytes.subarray(at, at += value) : value);
    ends.push(at);
  }
  if (bytes[0] !== 0x9a || items.length !== 10) throw new Error("the entry is not an array of ten items");
  return { items, ends };
}
// In the place of an erased body is its id, and the body without its texts (proto/README.md §6.1).
function bodyOf(stored) {
  const content = new TextDecoder("utf-8", { fatal: true }).decode(stored);
  const erased = /^\{"redacted":"event:([0-9a-f]{64})"(?:,"version":"sha256:[0-9a-f]{64}")?,"body":(\{.*\})\}$/s.exec(content);
  return { id: erased?.[1], event: JSON.parse(erased ? erased[2] : content) };
}
async function readEntry(bytes) {
  const { items, ends } = itemsOf(bytes), [version, stored, key, algorithm, signature, position, size] = items;
  if (version !== 1 || algorithm !== 1) throw new Error("the entry has an unknown version");
  const { id, event } = bodyOf(stored);
  const commitment = id ? unhex(id) : await leafHash(pae("application/vnd.deedbook.event.v1+json", stored));
  const leaf = await leafHash(join(bytes.subarray(0, ends[0]), [0xc4, 32], commitment, bytes.subarray(ends[1])));
  return { leaf, commitment, key, signature, position, size, event, isErased: id !== undefined };
}

// Climbs from a leaf along the drawn path (RFC 9162 §2.1.3.2), marks each step, and returns the root if all of it is right.
async function climb(id, leaf, position, size) {
  const rows = [...document.querySelectorAll(`#${id} > li`)], shown = (row, kind) => row.querySelector(`.${kind} > code`).textContent;
  let node = leaf, index = position, last = size - 1, isRight = position < size;
  const mark = (row, isSame) => { isRight = isRight && isSame; row.classList.add(isSame ? "passed" : "failed"); };
  for (const row of rows.slice(0, -1)) {
    const isLeft = index % 2 === 1 || index === last, sibling = unhex(shown(row, "sibling"));
    mark(row, last > 0 && hex(node) === shown(row, "own") && isLeft === row.firstElementChild.matches(".sibling"));
    node = isLeft ? await sha256([1], sibling, node) : await sha256([1], node, sibling);
    while (isLeft && index > 0 && index % 2 === 0) { index /= 2; last = Math.floor(last / 2); }
    index = Math.floor(index / 2);
    last = Math.floor(last / 2);
  }
  mark(rows.at(-1), last === 0 && hex(node) === shown(rows.at(-1), "own"));
  if (!isRight) rows[0].closest("details")?.setAttribute("open", "");
  return isRight ? node : null;
}

// Returns whether a signature is right; null if this browser has no Ed25519.
async function isSigned(key, message, signature) {
  let imported;
  try {
    imported = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
  } catch (error) {
    if (error.name === "NotSupportedError") return null;
    throw error;
  }
  return crypto.subtle.verify("Ed25519", imported, signature, message);
}
async function isNoteSigned(note, origin, key) {
  const end = note.lastIndexOf("\n\n"), message = utf8.encode(note.slice(0, end + 1));
  const id = hex((await sha256(utf8.encode(`${origin}\n`), [1], key)).subarray(0, 4));
  for (const line of note.slice(end + 2).split("\n")) {
    const [dash, name, content] = line.split(" ");
    if (dash !== "—" || name !== origin || hex(bytesOf(content).subarray(0, 4)) !== id) continue;
    return isSigned(key, message, bytesOf(content).subarray(4));
  }
  return false;
}
async function isEventSigned(entry) {
  const root = entry.size === 1 ? entry.commitment : await climb("batch", entry.commitment, entry.position, entry.size);
  return root !== null && isSigned(entry.key, pae("application/vnd.deedbook.batch.v1", join(u64(entry.size), root)), entry.signature);
}
// Invisible characters are written as escapes, as on every page.
function writeBody(bytes) {
  const body = document.getElementById("body"), escape = (unit) => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0");
  if ("writtenByScript" in body.dataset) body.textContent = JSON.stringify(bodyOf(itemsOf(bytes).items[1]).event, null, 2).replace(/(?![\n ])[\p{C}\p{Z}]/gu, (letter) => letter.split("").map(escape).join(""));
}
const isText = ({ event, key }) => event.kind === text("kind") && event.author === text("author") && hex(key) === text("author-key")
  && JSON.stringify(event) === JSON.stringify(JSON.parse(text("body")));

const results = new Map();
async function check(id, compute) {
  const row = document.getElementById(id);
  let isRight = false, why = "wrong";
  try { isRight = await compute(); } catch (error) { why = `wrong: ${error.message}`; }
  results.set(id, isRight);
  row.classList.add(isRight === null ? "open" : isRight ? "passed" : "failed");
  row.querySelector(".mark").textContent = isRight === null ? "○" : isRight ? "✓" : "✕";
  row.querySelector(".outcome").textContent = isRight === null ? "not checked: this browser has no Ed25519" : isRight ? "verified" : why;
}
function conclude(mark, colour, word, sentence) {
  const state = document.createElement("span"), verdict = document.getElementById("verdict");
  state.className = `state ${colour}`;
  state.textContent = `${mark} ${word}`;
  verdict.replaceChildren(state, ` ${sentence}`);
}
async function checkAll() {
  const path = document.getElementById("path"), [origin, size, root] = proof.dataset.note.split("\n");
  const content = bytesOf(proof.dataset.entry), drawn = (at) => [...path.querySelectorAll(".own > code")].at(at).textContent;
  const isOfEntry = (test) => async () => test(await readEntry(content));
  await check("check-entry", isOfEntry(({ leaf }) => hex(leaf) === drawn(0)));
  await check("check-path", isOfEntry(async ({ leaf }) => await climb("path", leaf, Number(path.dataset.index), Number(path.dataset.size)) !== null));
  await check("check-root", () => hex(bytesOf(root)) === drawn(-1) && size === path.dataset.size && origin === proof.dataset.origin);
  await check("check-log", () => isNoteSigned(proof.dataset.note, origin, unhex(text("log-key"))));
  await check("check-author", isOfEntry(isEventSigned));
  await check("check-text", isOfEntry(isText));
  const outcomes = [...results.values()];
  if (outcomes.includes(false)) conclude("✕", "stop", "wrong", "This page proves nothing. Check the receipt with the command below, and tell whoever runs this server.");
  else if (outcomes.includes(null)) conclude("○", "wait", "signatures not checked", `The hashes are right. This browser has no Ed25519, so it did not check who signed them: use the command below.`);
  else {
    const { isErased } = await readEntry(content), found = `Entry #${path.dataset.index} is in the log of ${Number(size).toLocaleString("en")} entries`;
    if (isErased) conclude("✓", "wait", "verified, but erased", `${found}. Its text was erased: nobody can check that the rest on this page is what the author signed.`);
    else conclude("✓", "ok", "verified", `${found}, with exactly the text under “The signed text”.`);
  }
}
try { writeBody(bytesOf(proof.dataset.entry)); } catch { /* the check of the entry says why */ }
if (isHashable) checkAll();
else conclude("○", "wait", "not checked", "This page came over plain http from another machine: there browsers offer no hash function. Use the command below.");
