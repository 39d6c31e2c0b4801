// RFC 6962 and RFC 9162: leaves, roots and inclusion.

import { createHash } from "node:crypto";

export function sha256(...parts: Uint8Array[]): Buffer {
  const hash = createHash("sha256");
  for (const part of parts) {
    hash.update(part);
  }
  return hash.digest();
}

export const leafHash = (data: Uint8Array): Buffer => sha256(Buffer.from([0]), data);
export const nodeHash = (left: Uint8Array, right: Uint8Array): Buffer => sha256(Buffer.from([1]), left, right);

/** RFC 6962 section 2.1, over leaf hashes. */
export function treeRoot(hashes: Buffer[]): Buffer {
  const [first] = hashes;
  if (first === undefined) {
    return sha256();
  }
  if (hashes.length === 1) {
    return first;
  }
  let split = 1;
  while (split * 2 < hashes.length) {
    split *= 2;
  }
  return nodeHash(treeRoot(hashes.slice(0, split)), treeRoot(hashes.slice(split)));
}

/** RFC 9162 section 2.1.3.2: the root that a path leads to, or null where it fits no tree of this size. */
export function rootOfPath(leaf: Buffer, index: number, size: number, path: Buffer[]): Buffer | null {
  if (index >= size) {
    return null;
  }
  let [node, last, root] = [index, size - 1, leaf];
  for (const sibling of path) {
    if (last === 0) {
      return null;
    }
    if (node % 2 === 1 || node === last) {
      root = nodeHash(sibling, root);
      while (node % 2 === 0 && node !== 0) {
        [node, last] = [Math.floor(node / 2), Math.floor(last / 2)];
      }
    } else {
      root = nodeHash(root, sibling);
    }
    [node, last] = [Math.floor(node / 2), Math.floor(last / 2)];
  }
  return last === 0 ? root : null;
}
