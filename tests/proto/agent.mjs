// An agent in another language, written from proto/README.md alone. No packages: Node 18 or later.
//
//   node agent.mjs sign     stdin {seed, events: [body]}        -> {public, events: [{body, pae, id, signature, envelope}]}
//   node agent.mjs possess  stdin {seed, ledger, agent}         -> {public, proof}
//   node agent.mjs check    stdin {entry, index, size, path, root, leaf_hash}  -> {leaf_hash, proven}
//   node agent.mjs refer    stdin {texts: [text]}               -> {hashes: [hex]}: BLAKE3 of each

import { createHash, createPrivateKey, createPublicKey, sign as signWith } from "node:crypto";
import { readFileSync } from "node:fs";

import { blake3 } from "./blake3.mjs";

const EVENT_TYPE = "application/vnd.baton.event.v1+json";
const POSSESSION_TYPE = "application/vnd.baton.possession.v1";
// RFC 8410: the ASN.1 around a raw Ed25519 seed.
const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");

function keyOf(seedHex) {
  const secret = createPrivateKey({ key: Buffer.concat([PKCS8, Buffer.from(seedHex, "hex")]), format: "der", type: "pkcs8" });
  const jwk = createPublicKey(secret).export({ format: "jwk" });
  return { secret, public: Buffer.from(jwk.x, "base64url") };
}

/** RFC 8785: JavaScript's own number and text forms, and its order of keys, are the canonical ones. */
function canonical(value) {
  if (Array.isArray(value)) {
    return `[${value.map(canonical).join(",")}]`;
  }
  if (value !== null && typeof value === "object") {
    const fields = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
    return `{${fields.join(",")}}`;
  }
  return JSON.stringify(value);
}

function pae(type, body) {
  return Buffer.concat([Buffer.from(`DSSEv1 ${Buffer.byteLength(type)} ${type} ${body.length} `), body]);
}

function signEvent(key, event) {
  const body = Buffer.from(canonical(event));
  const signed = pae(EVENT_TYPE, body);
  const signature = signWith(null, signed, key.secret);
  const envelope = {
    payloadType: EVENT_TYPE,
    payload: body.toString("base64"),
    signatures: [{ keyid: `ed25519:${key.public.toString("hex")}`, sig: signature.toString("base64") }],
  };
  const id = `blake3:${blake3(signed).toString("hex")}`;
  return { body: body.toString(), pae: signed.toString("hex"), id, signature: signature.toString("hex"), envelope };
}

const sha256 = (...parts) => createHash("sha256").update(Buffer.concat(parts)).digest();
const leafHash = (entry) => sha256(Buffer.from([0]), entry);

/** RFC 9162 §2.1.3.2. */
function leadsTo(leaf, index, size, path) {
  let [node, last, root] = [index, size - 1, leaf];
  for (const sibling of path) {
    if (last === 0) {
      return null;
    }
    if (node % 2 === 1 || node === last) {
      root = sha256(Buffer.from([1]), sibling, root);
      while (node % 2 === 0 && node !== 0) {
        [node, last] = [Math.floor(node / 2), Math.floor(last / 2)];
      }
    } else {
      root = sha256(Buffer.from([1]), root, sibling);
    }
    [node, last] = [Math.floor(node / 2), Math.floor(last / 2)];
  }
  return last === 0 ? root : null;
}

const verbs = {
  sign({ seed, events }) {
    const key = keyOf(seed);
    return { public: key.public.toString("hex"), events: events.map((event) => signEvent(key, event)) };
  },
  possess({ seed, ledger, agent }) {
    const key = keyOf(seed);
    const publicHex = key.public.toString("hex");
    const signed = pae(POSSESSION_TYPE, Buffer.from(`${ledger}\n${agent}\n${publicHex}`));
    return { public: publicHex, proof: signWith(null, signed, key.secret).toString("hex") };
  },
  check({ entry, index, size, path, root }) {
    const leaf = leafHash(Buffer.from(entry, "hex"));
    const found = leadsTo(leaf, index, size, path.map((hash) => Buffer.from(hash, "hex")));
    return { leaf_hash: leaf.toString("hex"), proven: found !== null && found.toString("hex") === root };
  },
  refer({ texts }) {
    return { hashes: texts.map((text) => blake3(Buffer.from(text)).toString("hex")) };
  },
};

const input = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(`${JSON.stringify(verbs[process.argv[2]](input))}\n`);
