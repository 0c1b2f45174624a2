// One round's layers, tickets and submissions: sections 5 to 7 of docs/another-language.md.
import {create, toBinary} from "@bufbuild/protobuf";
import {Chacha20Poly1305} from "@hpke/chacha20poly1305";
import {Aes128Gcm, CipherSuite, HkdfSha256} from "@hpke/core";
import {DhkemX25519HkdfSha256} from "@hpke/dhkem-x25519";
import {ed25519, ristretto255_oprf as oprf} from "@noble/curves/ed25519.js";

import {type Bytes, concat, context, copy, randomBytes, sha256, u16, utf8} from "./bytes.js";
import {Lane, SubmissionSchema} from "./gen/croupier/protocol/v1/messages_pb.js";
import type {Terms} from "./manifest.js";
import {check, Distrust} from "./refusals.js";

const AEADS = {"x25519-sha256-chacha20poly1305": Chacha20Poly1305, "x25519-sha256-aes128gcm": Aes128Gcm} as const;
const [ACCOUNTANT, RELEASE, ANALYZER] = [253, 254, 255] as const;
const EVALUATION_BYTES = 96;

export interface Layer {
  lane: Lane;
  hop: number;
  key: Uint8Array;
  info: Bytes;
}

/** A message of a ticket with what hides it from the accountant. */
export interface Blinded {
  message: Bytes;
  blind: Bytes;
  blinded: Bytes;
}

/** A randomized answer before it has its tickets. The answer itself is not in it: `sealed` only the accountant's key opens. */
export interface Prepared {
  sealed: Bytes;
  record: Bytes;
  tickets: [Blinded, Blinded];
  request: Bytes;
}

/** A sealed submission, and by hop the hashes of what it passes on: report, budget. */
export interface Sealed {
  submission: Bytes;
  inclusion: [Bytes, Bytes][];
}

export class Round {
  readonly suite: CipherSuite;
  readonly release: Layer[];
  readonly report: Layer[];
  readonly parameter: Layer[];
  readonly joint: Layer[];

  constructor(readonly terms: Terms) {
    const {hops, accountant, analyzer} = terms.manifest;
    const aead = AEADS[terms.survey.message.hpkeSuite as keyof typeof AEADS];
    check(aead !== undefined, "the suite is not known to this page");
    this.suite = new CipherSuite({kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new aead()});
    const later: [number, Uint8Array][] = hops.slice(1).map((hop, at) => [at + 2, hop.publicKey]);
    const layers = (lane: Lane, keys: [number, Uint8Array][]) =>
      keys.map(([hop, key]) => ({lane, hop, key, info: this.info(lane, hop, key)}));
    this.release = layers(Lane.REPORT, [[RELEASE, accountant!.releasePublicKey]]);
    this.report = layers(Lane.REPORT, [...later, [ANALYZER, analyzer!.publicKey]]);
    this.parameter = layers(Lane.PARAMETER, [...later, [ACCOUNTANT, accountant!.publicKey]]);
    this.joint = layers(Lane.JOINT, [[1, hops[0]!.publicKey]]);
  }

  info(lane: Lane, hop: number, key: Uint8Array): Bytes {
    const head = concat(utf8("croupier"), u16(1), Uint8Array.of(lane, hop));
    const fields = [utf8(this.terms.roundId), this.terms.hash, sha256(key).subarray(0, 16)];
    return concat(head, ...fields.flatMap((field) => [u16(field.length), field]));
  }

  /** Returns the ciphertexts, the outermost layer's first. */
  async seal(layers: Layer[], content: Uint8Array): Promise<Bytes[]> {
    const sealed: Bytes[] = [];
    let inner = copy(content);
    for (const {key, info} of [...layers].reverse()) {
      const recipientPublicKey = await this.suite.kem.deserializePublicKey(copy(key));
      const {ct, enc} = await this.suite.seal({recipientPublicKey, info}, inner);
      inner = concat(new Uint8Array(enc), new Uint8Array(ct));
      sealed.unshift(inner);
    }
    return sealed;
  }

  /** Returns a serialised Submission. */
  sign(purpose: "tickets" | "submit", envelope: Bytes, privateKey: Bytes): Bytes {
    const signed = concat(context(purpose), this.terms.hash, sha256(envelope));
    const signature = ed25519.sign(signed, privateKey);
    const clientKey = ed25519.getPublicKey(privateKey);
    return copy(toBinary(SubmissionSchema, create(SubmissionSchema, {clientKey, envelope, signature})));
  }

  /** Seals a report under the release key, and blinds what its tickets are for. */
  async prepare(report: Bytes, epsilon: number, privateKey: Bytes): Promise<Prepared> {
    const record = new Uint8Array(32);
    const view = new DataView(record.buffer);
    view.setFloat64(0, epsilon);
    view.setFloat64(8, 0);
    record.set(randomBytes(16), 16);
    const [sealed] = await this.seal(this.release, report);
    const contents: [Lane, Bytes][] = [[Lane.REPORT, sha256(sealed!)], [Lane.PARAMETER, record]];
    const [first, second] = contents.map(([lane, content]) => {
      const message = sha256(context("ticket"), this.terms.hash, Uint8Array.of(lane), content);
      const {blind, blinded} = oprf.voprf.blind(message);
      return {message, blind: copy(blind), blinded: copy(blinded)};
    });
    const request = this.sign("tickets", concat(first!.blinded, second!.blinded), privateKey);
    return {sealed: sealed!, record, tickets: [first!, second!], request};
  }

  /** Returns the sealed submission; Distrust if the accountant's evaluations do not verify under the manifest's keys. */
  async wrap(prepared: Prepared, evaluations: [Uint8Array, Uint8Array], privateKey: Bytes): Promise<Sealed> {
    const {reportTicketKey, parameterTicketKey} = this.terms.manifest.accountant!;
    const report = ticket(prepared.tickets[0], evaluations[0], reportTicketKey);
    const budget = ticket(prepared.tickets[1], evaluations[1], parameterTicketKey);
    const reports = await this.seal(this.report, concat(report, prepared.sealed));
    const budgets = await this.seal(this.parameter, concat(budget, prepared.record));
    const [envelope] = await this.seal(this.joint, concat(reports[0]!, budgets[0]!));
    const inclusion = reports.map((each, at): [Bytes, Bytes] => [sha256(each), sha256(budgets[at]!)]);
    return {submission: this.sign("submit", envelope!, privateKey), inclusion};
  }
}

/** Returns a ticket: its proof is checked against the manifest's key. */
export function ticket({message, blind, blinded}: Blinded, answer: Uint8Array, key: Uint8Array): Bytes {
  check(answer.length === EVALUATION_BYTES, "the accountant's answer has another length than a ticket");
  try {
    const [proof, evaluated] = [answer.subarray(0, 64), answer.subarray(64)];
    return copy(oprf.voprf.finalize(message, blind, evaluated, blinded, key, proof));
  } catch {
    throw new Distrust("the tickets do not verify under the key of the manifest");
  }
}
