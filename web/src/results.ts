// After the round: the published result, verified, and whether every hop has passed the answer on.
import {type Bytes, concat, equal, hex, sha256} from "./bytes.js";
import type {Gateway} from "./calls.js";
import {chain, type Deployment} from "./deployment.js";
import {decode, signedBy} from "./documents.js";
import {
  type Certificate,
  CertificateSchema,
  type Commitment,
  CommitmentSchema,
  Lane,
  type Publication,
  PublicationSchema,
  type Signed,
} from "./gen/croupier/protocol/v1/messages_pb.js";
import type {Terms} from "./manifest.js";
import {check} from "./refusals.js";

const HASH_BYTES = 32;
const LANES = [Lane.REPORT, Lane.PARAMETER] as const;

export interface Result {
  publication: Publication;
  certificate: Certificate;
}

/** Returns the result of a round and its certificate, both signed and about this manifest. */
export function readResult(document: Signed | undefined, terms: Terms, deployment: Deployment): Result {
  const nameOf = (role: string) => deployment.services.find((one) => one.role === role)!.name;
  const signed = signedBy("publication", document, deployment, [nameOf("analyzer")], terms.time);
  const publication = decode("publication", PublicationSchema, signed);
  const stated = signedBy("certificate", publication.certificate, deployment, [nameOf("accountant")], terms.time);
  const certificate = decode("certificate", CertificateSchema, stated);
  for (const {roundId, manifestHash} of [publication, certificate]) {
    check(roundId === terms.roundId && equal(manifestHash, terms.hash), "the result is about another round");
  }
  return {publication, certificate};
}

/** Returns an estimate as it is shown: as it is where it is possible, else the nearest end of the possible range. */
export function placed(estimate: number, low: number, high: number): {shown: number; isOutside: boolean} {
  const shown = Math.min(high, Math.max(low, estimate));
  return {shown, isOutside: shown !== estimate};
}

export async function fetchResult(gateway: Gateway, terms: Terms, deployment: Deployment): Promise<Result> {
  const {publication} = await gateway.call("GetResult", {roundId: terms.roundId}, 1);
  return readResult(publication, terms, deployment);
}

const dropped = ({drops}: Commitment): bigint => drops.reduce((sum, one) => sum + one.count, 0n);
const sameDrops = (one: Commitment, other: Commitment): boolean => {
  const listed = ({drops}: Commitment) => drops.map(({reason, count}) => `${reason} ${count}`).join("\n");
  return listed(one) === listed(other);
};

/** Returns the commitments of each lane in the order of the hops, after checking that they form the certified chain. */
export function certifiedChain(certificate: Certificate, terms: Terms, deployment: Deployment): Commitment[][] {
  const hops = chain(deployment).filter((one) => one.role === "shuffler");
  check(certificate.commitments.length === 2 * hops.length, "the certificate has another number of commitments");
  const lanes: Commitment[][] = [[], []];
  certificate.commitments.forEach((document, at) => {
    const [hop, lane] = [Math.floor(at / 2), at % 2];
    const payload = signedBy("commitment", document, deployment, [hops[hop]!.name], terms.time);
    const one = decode("commitment", CommitmentSchema, payload);
    const before = lanes[lane]![hop - 1];
    check(one.roundId === terms.roundId && equal(one.manifestHash, terms.hash), "a commitment is about another round");
    check(one.hop === hop + 1 && one.lane === LANES[lane], "a commitment is about another hop or lane");
    check(!before || equal(one.digestIn, before.digestOut), "a hop has received something else than was passed on");
    check(!before || one.numIn === before.numOut, "a hop has received another number than was passed on");
    check(one.numIn + one.numFakes === one.numOut + dropped(one), "the numbers of a commitment do not add up");
    check(!one.numFakes || (terms.survey.message.hopNoise !== undefined && lane === 0), "a hop has added answers where it must add none");
    lanes[lane]!.push(one);
  });
  const [report, parameter] = [lanes[0]![0]!, lanes[1]![0]!];
  check(
    report.numIn === parameter.numIn &&
      report.numOut - report.numFakes === parameter.numOut &&
      equal(report.digestIn, parameter.digestIn) &&
      sameDrops(report, parameter),
    "hop 1 has committed to different lanes",
  );
  check(equal(lanes[0]!.at(-1)!.digestOut, certificate.batchDigest), "the commitments do not lead to the batch");
  return lanes;
}

async function passedOn(gateway: Gateway, terms: Terms, one: Commitment, own: Bytes): Promise<boolean> {
  const parts: Uint8Array[] = [];
  const sought = hex(own);
  let found = false;
  for (let read = 0n; read < one.numOut; ) {
    const asked = {roundId: terms.roundId, offset: read, lane: one.lane, hop: one.hop};
    const {hashes} = await gateway.call("GetInclusion", asked);
    const more = BigInt(Math.floor(hashes.length / HASH_BYTES));
    const whole = more > 0n && hashes.length % HASH_BYTES === 0 && read + more <= one.numOut;
    check(whole, "a hop shows another list than the one it has committed to");
    for (let at = 0; at < hashes.length; at += HASH_BYTES) found ||= hex(hashes.subarray(at, at + HASH_BYTES)) === sought;
    parts.push(hashes);
    read += more;
  }
  check(equal(sha256(concat(...parts)), one.digestOut), "a hop shows another list than the one it has committed to");
  return found;
}

/** Returns the names of the hops that have not passed on what these hashes are of. */
export async function missingAt(
  gateway: Gateway,
  certificate: Certificate,
  terms: Terms,
  deployment: Deployment,
  inclusion: [Bytes, Bytes][],
): Promise<string[]> {
  const lanes = certifiedChain(certificate, terms, deployment);
  const names = chain(deployment).map((one) => one.name);
  const missing = [];
  for (const [hop, own] of inclusion.entries()) {
    const all = [];
    for (const lane of [0, 1] as const) all.push(await passedOn(gateway, terms, lanes[lane]![hop]!, own[lane]));
    if (all.includes(false)) missing.push(names[hop]!);
  }
  return missing;
}
