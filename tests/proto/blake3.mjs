// Test code: BLAKE3 (hash mode, 32 bytes), because node:crypto has none. Plain and slow; for small inputs only.
// Source: the BLAKE3 paper, sections 2.1 to 2.5.

const IV = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
const ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const CHUNK_START = 1;
const CHUNK_END = 2;
const PARENT = 4;
const ROOT = 8;

const turn = (word, bits) => ((word >>> bits) | (word << (32 - bits))) >>> 0;

function mix(state, a, b, c, d, x, y) {
  state[a] = (state[a] + state[b] + x) >>> 0;
  state[d] = turn(state[d] ^ state[a], 16);
  state[c] = (state[c] + state[d]) >>> 0;
  state[b] = turn(state[b] ^ state[c], 12);
  state[a] = (state[a] + state[b] + y) >>> 0;
  state[d] = turn(state[d] ^ state[a], 8);
  state[c] = (state[c] + state[d]) >>> 0;
  state[b] = turn(state[b] ^ state[c], 7);
}

function compress(chaining, block, counter, length, flags) {
  const state = [...chaining, ...IV.slice(0, 4), counter, 0, length, flags];
  let words = block;
  for (let round = 0; round < 7; round += 1) {
    for (let column = 0; column < 4; column += 1) {
      mix(state, column, column + 4, column + 8, column + 12, words[2 * column], words[2 * column + 1]);
    }
    for (let column = 0; column < 4; column += 1) {
      const [b, c, d] = [4 + ((column + 1) % 4), 8 + ((column + 2) % 4), 12 + ((column + 3) % 4)];
      mix(state, column, b, c, d, words[8 + 2 * column], words[9 + 2 * column]);
    }
    words = ORDER.map((position) => words[position]);
  }
  return IV.map((_, position) => (state[position] ^ state[position + 8]) >>> 0);
}

function wordsOf(bytes) {
  const block = new Uint8Array(64);
  block.set(bytes);
  const view = new DataView(block.buffer);
  return Array.from({ length: 16 }, (_, position) => view.getUint32(4 * position, true));
}

function chunk(bytes, counter, lastFlags) {
  const blocks = Math.max(1, Math.ceil(bytes.length / 64));
  let chaining = IV;
  for (let number = 0; number < blocks; number += 1) {
    const block = bytes.subarray(64 * number, 64 * number + 64);
    const first = number === 0 ? CHUNK_START : 0;
    const last = number === blocks - 1 ? CHUNK_END | lastFlags : 0;
    chaining = compress(chaining, wordsOf(block), counter, block.length, first | last);
  }
  return chaining;
}

function subtree(bytes, counter, flags) {
  if (bytes.length <= 1024) {
    return chunk(bytes, counter, flags);
  }
  let left = 1024;
  while (2 * left < bytes.length) {
    left *= 2;
  }
  const words = [...subtree(bytes.subarray(0, left), counter, 0), ...subtree(bytes.subarray(left), counter + left / 1024, 0)];
  return compress(IV, words, 0, 64, PARENT | flags);
}

/** Return the BLAKE3 hash of the bytes, 32 bytes. */
export function blake3(bytes) {
  const digest = new DataView(new ArrayBuffer(32));
  subtree(Uint8Array.from(bytes), 0, ROOT).forEach((word, position) => digest.setUint32(4 * position, word, true));
  return Buffer.from(digest.buffer);
}
