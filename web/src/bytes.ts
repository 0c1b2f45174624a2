// Bytes: joining, comparing, and the ways in which they are written down.
import {sha256 as hashOf} from "@noble/hashes/sha2.js";

export type Bytes = Uint8Array<ArrayBuffer>;

export function concat(...parts: Uint8Array[]): Bytes {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** Returns a copy that owns its buffer, as WebCrypto and IndexedDB want it. */
export const copy = (bytes: Uint8Array): Bytes => concat(bytes);
export const utf8 = (text: string): Bytes => copy(new TextEncoder().encode(text));
export const byteLength = (text: string): number => new TextEncoder().encode(text).length;
export const u16 = (number: number): Bytes => Uint8Array.of(number >> 8, number & 255);
/** Returns what every signature and hash begins with, so that no document can be taken for one of another kind. */
export const context = (kind: string): Bytes => utf8(`croupier/v1/${kind}\0`);
export const sha256 = (...parts: Uint8Array[]): Bytes => copy(hashOf(concat(...parts)));

export function equal(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, at) => byte === other[at]);
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text: string): Bytes {
  if (!/^([0-9a-f]{2})*$/.test(text)) throw new Error("these are not hexadecimal digits");
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** Returns the bytes, so many of them, that are written in base64url, or undefined. */
export function fromBase64Url(text: string, count = 32): Bytes | undefined {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length !== Math.ceil((count * 4) / 3)) return undefined;
  const raw = atob(text.replaceAll("-", "+").replaceAll("_", "/").padEnd(Math.ceil(text.length / 4) * 4, "="));
  return Uint8Array.from(raw, (character) => character.charCodeAt(0));
}

export function randomBytes(count: number): Bytes {
  return crypto.getRandomValues(new Uint8Array(count));
}

export function asBigInt(bytes: Uint8Array): bigint {
  return BigInt(`0x${hex(bytes)}`);
}
