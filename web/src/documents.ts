// Signed documents: whose signatures they need, and the hash by which others name them.
import {type DescMessage, fromBinary, type MessageShape, toBinary} from "@bufbuild/protobuf";
import {ed25519} from "@noble/curves/ed25519.js";

import {asBigInt, type Bytes, concat, context, copy, equal, sha256} from "./bytes.js";
import {believed, type Deployment} from "./deployment.js";
import type {Signature, Signed} from "./gen/croupier/protocol/v1/messages_pb.js";
import {check} from "./refusals.js";

type Kind = "manifest" | "publication" | "certificate" | "commitment";

const PRIME = 2n ** 255n - 19n;
const ORDER_8 = 0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7n;
const SMALL_ORDERS = [0n, 1n, PRIME - 1n, ORDER_8, PRIME - ORDER_8];

export const documentHash = (kind: Kind, payload: Uint8Array): Bytes => sha256(context(kind), payload);

/** One signature of a point of small order fits many messages. */
export function hasSmallOrder(publicKey: Uint8Array): boolean {
  const y = asBigInt(copy(publicKey).reverse()) % 2n ** 255n;
  return SMALL_ORDERS.includes(y % PRIME);
}

/** Returns whether a signature of a message is by this key. */
export function isBy(key: Uint8Array, signature: Uint8Array, message: Uint8Array): boolean {
  return !hasSmallOrder(key) && signature.length === 64 && ed25519.verify(signature, message, key, {zip215: false});
}

function checkSignature(kind: Kind, payload: Uint8Array, one: Signature, deployment: Deployment, time?: number): void {
  const service = deployment.services.find((each) => each.name === one.signer);
  const message = concat(context(kind), payload);
  const fits = service && believed(service, time).some((key) => isBy(key, one.signature, message));
  check(Boolean(fits), `the signature of ${one.signer} on the ${kind} is wrong`);
}

/** Returns the payload of a document that these services have signed, each once, and nobody else. */
export function signedBy(
  kind: Kind,
  document: Signed | undefined,
  deployment: Deployment,
  names: string[],
  time?: number,
): Bytes {
  check(document !== undefined, `the ${kind} is missing`);
  const signers = document.signatures.map((one) => one.signer);
  const all = signers.length === names.length && names.every((name) => signers.includes(name));
  check(all && new Set(signers).size === signers.length, `the ${kind} is signed by ${signers.join(", ") || "nobody"}`);
  for (const one of document.signatures) checkSignature(kind, document.payload, one, deployment, time);
  return copy(document.payload);
}

/** Returns a message; Distrust for bytes that are not one. */
export function decode<Desc extends DescMessage>(what: string, schema: Desc, bytes: Uint8Array): MessageShape<Desc> {
  try {
    return fromBinary(schema, bytes);
  } catch {
    check(false, `the ${what} cannot be read`);
  }
}

/** Returns a message whose bytes are canonical, without anything that is not known here. */
export function decodeCanonical<Desc extends DescMessage>(what: string, schema: Desc, bytes: Uint8Array): MessageShape<Desc> {
  const message = decode(what, schema, bytes);
  const understood = toBinary(schema, message, {writeUnknownFields: false});
  check(equal(understood, bytes), `the ${what} has fields that this page does not know, or is not canonical`);
  return message;
}
