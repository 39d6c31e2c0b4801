// Ed25519 by Node's own crypto (OpenSSL), and the checks that OpenSSL leaves to its callers (proto/README.md, section 4).

import { createPrivateKey, createPublicKey, type KeyObject, sign as signWith, verify as verifyWith } from "node:crypto";

// RFC 8410: the ASN.1 around a raw Ed25519 seed.
const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");
const PRIME = 2n ** 255n - 19n;
// The y coordinates of the points whose order divides 8; each stands for two points where x is not 0.
const ORDER_8_Y = 0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7n;
const SMALL_ORDER_Y = new Set([0n, 1n, PRIME - 1n, ORDER_8_Y, PRIME - ORDER_8_Y]);

export interface Key {
  secret: KeyObject;
  publicKey: Buffer;
}

export function keyOf(seed: Buffer): Key {
  const secret = createPrivateKey({ key: Buffer.concat([PKCS8, seed]), format: "der", type: "pkcs8" });
  const { x } = createPublicKey(secret).export({ format: "jwk" });
  return { secret, publicKey: Buffer.from(x ?? "", "base64url") };
}

export function sign(key: Key, message: Buffer): Buffer {
  return signWith(null, message, key.secret);
}

/** OpenSSL checks that S is reduced and takes the equation without the cofactor; points are up to whoever calls it. */
export function verify(publicKey: Buffer, message: Buffer, signature: Buffer): boolean {
  if (publicKey.length !== 32 || signature.length !== 64) {
    return false;
  }
  if (!isSound(publicKey) || !isSound(signature.subarray(0, 32))) {
    return false;
  }
  try {
    const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: publicKey.toString("base64url") }, format: "jwk" });
    return verifyWith(null, message, key, signature);
  } catch {
    return false; // the bytes are no point of the curve
  }
}

export function verifyByOpenSsl(publicKey: Buffer, message: Buffer, signature: Buffer): boolean {
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: publicKey.toString("base64url") }, format: "jwk" });
  return verifyWith(null, message, key, signature);
}

/** A point in its one encoding, and not of small order. */
function isSound(point: Buffer): boolean {
  const y = BigInt(`0x${Buffer.from(point).reverse().toString("hex")}`) & (2n ** 255n - 1n);
  return y < PRIME && !SMALL_ORDER_Y.has(y);
}
