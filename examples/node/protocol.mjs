// What docs/another-language.md specifies between the manifest and the submission, with packages for the cryptography:
// @hpke (RFC 9180), @noble/curves (RFC 9497), and Node's own Ed25519 and SHA-256. It knows randomized response only.
import {createHash, createPrivateKey, createPublicKey, generateKeyPairSync, randomBytes} from "node:crypto";
import {sign, verify} from "node:crypto";
import {fileURLToPath} from "node:url";

import {Chacha20Poly1305} from "@hpke/chacha20poly1305";
import {Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256} from "@hpke/core";
import {ristretto255_oprf} from "@noble/curves/ed25519.js";
import protobuf from "protobufjs";

const {voprf} = ristretto255_oprf;
const AEADS = {"x25519-sha256-chacha20poly1305": Chacha20Poly1305, "x25519-sha256-aes128gcm": Aes128Gcm};
const [ACCOUNTANT, RELEASE, ANALYZER] = [253, 254, 255];
const [JOINT, REPORT, PARAMETER] = [1, 2, 3];
const ED25519_PUBLIC = Buffer.from("302a300506032b6570032100", "hex"); // what precedes the 32 bytes in DER
const ED25519_PRIVATE = Buffer.from("302e020100300506032b657004220420", "hex");

const root = new protobuf.Root();
root.resolvePath = (_, file) => fileURLToPath(new URL(`../../proto/${file}`, import.meta.url));
root.loadSync("croupier/protocol/v1/services.proto", {keepCase: true});
export const message = (name) => root.lookupType(`croupier.protocol.v1.${name}`);

export const sha256 = (...parts) => createHash("sha256").update(Buffer.concat(parts)).digest();
export const context = (kind) => Buffer.from(`croupier/v1/${kind}\0`);
const u16 = (number) => Buffer.from([number >> 8, number & 255]);

// ---- 3. the manifest

/** Returns the payload of a document that everyone in `pinned` ({name: [identities]}) has signed, and no one else. */
export function signedByAll(kind, document, pinned) {
  const signers = new Set(document.signatures.map((one) => one.signer));
  if (signers.size !== Object.keys(pinned).length) throw new Error(`the ${kind} is signed by ${[...signers]}`);
  for (const {signer, signature} of document.signatures) {
    const signed = Buffer.concat([context(kind), document.payload]);
    const fits = (key) => verify(null, signed, publicKey(key), signature);
    if (!(pinned[signer] ?? []).some(fits)) throw new Error(`the signature of ${signer} on the ${kind} is wrong`);
  }
  return document.payload;
}

const publicKey = (raw) => createPublicKey({key: Buffer.concat([ED25519_PUBLIC, raw]), format: "der", type: "spki"});
const privateKey = (raw) =>
  createPrivateKey({key: Buffer.concat([ED25519_PRIVATE, raw]), format: "der", type: "pkcs8"});
const rawPublic = (key) => createPublicKey(key).export({format: "der", type: "spki"}).subarray(-32);

// ---- 4. budget and report

/** Returns ceil(2^64 k / (e^epsilon + k - 1)). The series is cut off below e^epsilon, which makes it larger at most. */
export function blanketThreshold(epsilon, k) {
  const bits = 256n;
  const x = BigInt(epsilon * 2 ** 82) << (bits - 82n); // exact for a double of at least 1e-9
  let [term, sum] = [1n << bits, 0n];
  for (let n = 1n; term > 0n; n += 1n) {
    sum += term;
    term = (term * x) / (n << bits);
  }
  const below = sum + (BigInt(k - 1) << bits);
  return ((BigInt(k) << (64n + bits)) + below - 1n) / below;
}

export const flipThreshold = (epsilon) => (blanketThreshold(epsilon, 2) + 1n) / 2n;

/** Returns the 8 bytes of a randomized bit. */
export function randomizeBit(bit, epsilon) {
  const flip = randomBytes(8).readBigUInt64BE() < flipThreshold(epsilon);
  const report = Buffer.alloc(8);
  report.writeBigInt64BE(BigInt(flip ? 1 - bit : bit));
  return report;
}

// ---- 5. layers, 6. tickets, 7. the submission

export class Round {
  constructor(payload) {
    this.manifest = message("Manifest").decode(payload);
    const understood = Buffer.from(message("Manifest").encode(this.manifest).finish());
    if (!understood.equals(payload)) throw new Error("the manifest has fields that this client does not know");
    this.hash = sha256(context("manifest"), payload);
    const {hops, accountant, analyzer, hpke_suite: suite} = this.manifest;
    if (!AEADS[suite]) throw new Error(`the suite is ${suite}, which this client does not know`);
    this.suite = new CipherSuite({kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new AEADS[suite]()});
    const later = hops.slice(1).map((hop, index) => [index + 2, hop.public_key]);
    const layers = (lane, keys) => keys.map(([hop, key]) => ({lane, hop, key, info: this.info(lane, hop, key)}));
    this.release = layers(REPORT, [[RELEASE, accountant.release_public_key]]);
    this.report = layers(REPORT, [...later, [ANALYZER, analyzer.public_key]]);
    this.parameter = layers(PARAMETER, [...later, [ACCOUNTANT, accountant.public_key]]);
    this.joint = layers(JOINT, [[1, hops[0].public_key]]);
  }

  info(lane, hop, key) {
    const fields = [Buffer.from(this.manifest.round_id), this.hash, sha256(key).subarray(0, 16)];
    const head = Buffer.concat([Buffer.from("croupier"), u16(1), Buffer.from([lane, hop])]);
    return Buffer.concat([head, ...fields.flatMap((field) => [u16(field.length), field])]);
  }

  /** Returns the ciphertext of the outermost layer. */
  async seal(layers, content) {
    let sealed = content;
    for (const {key, info} of layers.toReversed()) {
      const recipientPublicKey = await this.suite.kem.deserializePublicKey(key);
      const {ct, enc} = await this.suite.seal({recipientPublicKey, info}, sealed);
      sealed = Buffer.concat([Buffer.from(enc), Buffer.from(ct)]);
    }
    return sealed;
  }

  ticketMessage(lane, content) {
    return sha256(context("ticket"), this.hash, Buffer.from([lane]), content);
  }

  /** Returns a Submission, as a plain object. */
  sign(purpose, envelope, key, token) {
    const hashes = [sha256(envelope), ...(token.length ? [sha256(token)] : [])];
    const signed = Buffer.concat([context(purpose), this.hash, ...hashes]);
    const signature = sign(null, signed, privateKey(key));
    return {client_key: rawPublic(privateKey(key)), envelope, signature, ...(token.length ? {token} : {})};
  }
}

/** Returns the ticket for a message: the proof is checked against the manifest's key, or it throws. */
export function ticket(input, {blind, blinded}, answer, key) {
  return Buffer.from(voprf.finalize(input, blind, answer.subarray(64, 96), blinded, key, answer.subarray(0, 64)));
}

export class Answer {
  /** Seals a report and blinds what its tickets are for; `request` goes to the accountant. A token gets a fresh key. */
  static async make(round, report, budget, {token, key: enrolled}) {
    const answer = new Answer();
    const fresh = () => generateKeyPairSync("ed25519").privateKey.export({format: "der", type: "pkcs8"}).subarray(-32);
    const key = enrolled.length ? enrolled : fresh();
    const record = Buffer.alloc(32);
    record.writeDoubleBE(budget.epsilon, 0);
    record.writeDoubleBE(budget.delta, 8);
    randomBytes(16).copy(record, 16);
    const sealed = await round.seal(round.release, report);
    const messages = [round.ticketMessage(REPORT, sha256(sealed)), round.ticketMessage(PARAMETER, record)];
    const blinded = messages.map((one) => voprf.blind(one));
    const both = Buffer.concat(blinded.map((one) => Buffer.from(one.blinded)));
    Object.assign(answer, {round, token, key, record, sealed, messages, blinded});
    answer.request = round.sign("tickets", both, key, token);
    return answer;
  }

  /** Returns the submission for hop 1. */
  async submission(evaluations) {
    const {report_ticket_key: first, parameter_ticket_key: second} = this.round.manifest.accountant;
    const [report, budget] = [first, second].map((key, at) =>
      ticket(this.messages[at], this.blinded[at], evaluations[at], key),
    );
    const reports = await this.round.seal(this.round.report, Buffer.concat([report, this.sealed]));
    const budgets = await this.round.seal(this.round.parameter, Buffer.concat([budget, this.record]));
    const envelope = await this.round.seal(this.round.joint, Buffer.concat([reports, budgets]));
    return this.round.sign("submit", envelope, this.key, this.token);
  }
}
