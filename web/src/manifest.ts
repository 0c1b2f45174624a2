// The manifest of a round: verified and checked as docs/another-language.md says, or refused.
import {toBinary} from "@bufbuild/protobuf";

import {byteLength, type Bytes, equal, hex} from "./bytes.js";
import {chain, type Deployment} from "./deployment.js";
import {decode, documentHash, signedBy} from "./documents.js";
import {
  type Manifest,
  ManifestSchema,
  type Question,
  type RoundKeys,
  ShortBatchPolicy,
  type Signed,
} from "./gen/croupier/protocol/v1/messages_pb.js";
import {type Space, spaceFor} from "./projective.js";
import {check, NeedsProgram} from "./refusals.js";
import {checkShown, checkWordings} from "./shown.js";
import {checkWaveOf} from "./study.js";
import {checkSurveyOf} from "./survey.js";

const SUITES = ["x25519-sha256-chacha20poly1305", "x25519-sha256-aes128gcm"];
const OTHER_SUITES = ["mlkem768x25519-sha256-chacha20poly1305"];
const KEY_BYTES = 32;

/** What a person can answer: one of `choices`, several of them (the number whose bits say which), or a number in [low, high]. */
export type Answerable =
  | {kind: "rr"; choices: 2}
  | {kind: "krr"; choices: number; labels: string[]}
  | {kind: "pgr"; choices: number; labels: string[]; space: Space}
  | {kind: "choices"; choices: number; labels: string[]}
  | {kind: "onebit"; choices: 0; low: number; high: number}
  | {kind: "levels"; choices: 0; low: number; high: number; k: number};

/** Returns whether a number is asked for. */
export const isNumber = (asked: Answerable): asked is Extract<Answerable, {low: number}> => "low" in asked;

/** A manifest that has passed every check. */
export interface Terms {
  manifest: Manifest;
  payload: Bytes;
  hash: Bytes;
  roundId: string;
  question: Question;
  asked: Answerable;
  budgets: number[];
  /** The largest time at which a service has made its keys, Unix seconds; undefined where one does not say it. */
  time: number | undefined;
}

const keysIn = ({hops, accountant, analyzer}: Manifest): RoundKeys[] => {
  check(accountant !== undefined && analyzer !== undefined, "the manifest names no accountant or no analyzer");
  return [...hops, accountant, analyzer];
};

function timeOf(manifest: Manifest): number | undefined {
  const times = keysIn(manifest).map((keys) => Number(keys.createdUnixS));
  return times.every(Boolean) ? Math.max(...times) : undefined;
}

/** The largest local budget that this page offers in a round with hop noise: if no server is honest, nothing else protects
 * the person. */
const MOST_WITH_HOP_NOISE = 8;

const within = (value: number, low: number, high: number): boolean => low < value && value <= high;

/** Returns the terms of the manifest that a service has shown; Distrust or NeedsProgram if they cannot be answered. */
export function readManifest(document: Signed | undefined, deployment: Deployment, asked = ""): Terms {
  check(document !== undefined, "the manifest is missing");
  const manifest = decode("manifest", ManifestSchema, document.payload);
  const time = timeOf(manifest);
  const names = chain(deployment).map((service) => service.name);
  const payload = signedBy("manifest", document, deployment, names, time);
  const understood = toBinary(ManifestSchema, manifest, {writeUnknownFields: false});
  check(equal(understood, payload), "the manifest has fields that this page does not know, or is not canonical");
  checkPlace(manifest, deployment, names, asked);
  check(manifest.question !== undefined, "the manifest has no question");
  const answerable = readQuestion(manifest.question);
  checkTerms(manifest);
  checkHopNoise(manifest);
  checkBudgetPrivacy(manifest);
  checkKeys(manifest);
  checkSurveyOf(manifest);
  checkWaveOf(manifest);
  return {
    manifest,
    payload,
    hash: documentHash("manifest", payload),
    roundId: manifest.roundId,
    question: manifest.question,
    asked: answerable,
    budgets: manifest.budgetGrid.map((one) => one.epsilon).filter((one) => !manifest.hopNoise || one <= MOST_WITH_HOP_NOISE),
    time,
  };
}

function checkPlace(manifest: Manifest, deployment: Deployment, names: string[], asked: string): void {
  const {protocolVersion, deployment: name, roundId, privacyLimit: limit} = manifest;
  check(protocolVersion === 1, "the manifest is of another version of the protocol");
  check(name === deployment.name, "the manifest is of another deployment");
  check(within(byteLength(roundId), 0, 128) && (!asked || roundId === asked), "the manifest is of another round");
  checkShown("round_id", roundId);
  const services = keysIn(manifest).map((keys) => keys.service);
  check(services.join("\n") === names.join("\n"), "the manifest names other services, or in another order");
  const stated = limit && [limit.totalEpsilon, limit.totalDelta, limit.maxRounds, limit.fixedTerms];
  const pinned = deployment.privacyLimit;
  const ours = pinned && [pinned.total_epsilon, pinned.total_delta, pinned.max_rounds, pinned.fixed_terms];
  check(String(stated ?? null) === String(ours ?? null), "the manifest states another privacy limit");
}

function readQuestion(question: Question): Answerable {
  const {name, mechanism} = question;
  check(/^[\p{L}\p{N}_-]{1,64}$/u.test(name), "the name of the question is not one");
  checkShown("the name of the question", name);
  const known = answerableOf(mechanism);
  checkWordings(question, known.choices, isNumber(known));
  return known;
}

function answerableOf(mechanism: Question["mechanism"]): Answerable {
  if (mechanism.case === "rr") return {kind: "rr", choices: 2};
  if (mechanism.case === "krr" || mechanism.case === "pgr") {
    const {k, labels} = mechanism.value;
    check(k >= (mechanism.case === "pgr" ? 3 : 2) && k <= 65536, "the number of categories is out of range");
    check(labels.length === 0 || (labels.length === k && new Set(labels).size === k), "the categories' names are wrong");
    check(byteLength(labels.join("")) <= 2 ** 20, "the categories' names are too long");
    for (const label of labels) checkShown("a category", label);
    const names = labels.length ? labels : Array.from({length: k}, (_, at) => String(at));
    if (mechanism.case === "pgr") return {kind: "pgr", choices: k, labels: names, space: spaceFor(k, mechanism.value.q)};
    return {kind: "krr", choices: k, labels: names};
  }
  if (mechanism.case === "choices") {
    const {k, labels} = mechanism.value;
    check(k >= 2 && k <= 32, "the number of options is out of range");
    check(labels.length === 0 || (labels.length === k && new Set(labels).size === k), "the options' names are wrong");
    for (const label of labels) {
      checkShown("an option", label);
      check(!["", "none"].includes(label) && !label.includes(";") && label === label.trim(), "an option has a name that it cannot have");
    }
    return {kind: "choices", choices: k, labels: labels.length ? labels : Array.from({length: k}, (_, at) => String(at))};
  }
  if (mechanism.case === "onebit" || mechanism.case === "levels") {
    const {low, high} = mechanism.value;
    check([low, high, high - low].every(Number.isFinite) && low < high, "the range of the number is not one");
    if (mechanism.case === "onebit") return {kind: "onebit", choices: 0, low, high};
    const {k} = mechanism.value;
    check(k >= 2 && k <= 1024, "the number of levels is out of range");
    return {kind: "levels", choices: 0, low, high, k};
  }
  check(mechanism.case !== undefined, "the question asks for something that this page does not know");
  throw new NeedsProgram(mechanism.case);
}

function checkTerms(manifest: Manifest): void {
  const {budgetGrid: grid, minBatchSize: least, maxBatchSize: most, shortBatchPolicy, hpkeSuite} = manifest;
  if (OTHER_SUITES.includes(hpkeSuite)) throw new NeedsProgram(hpkeSuite);
  check(SUITES.includes(hpkeSuite), "the suite is not known to this page");
  check(grid.length > 0 && grid.length <= 4096, "the number of budgets is out of range");
  grid.forEach(({epsilon, delta, epsilonMax}, at) => {
    check(within(epsilon, 1e-9, 20) && delta === 0, "a budget is out of range");
    check(epsilonMax === undefined || within(epsilonMax, 0, 20), "the limit of a budget is out of range");
    check(at === 0 || epsilon > grid[at - 1]!.epsilon, "the budgets are not in ascending order");
  });
  check(least >= 2 && (most === 0 || most >= least), "the number of people is out of range");
  const policies = [ShortBatchPolicy.HOLD, ShortBatchPolicy.DISPOSE];
  check(policies.includes(shortBatchPolicy), "what happens with too few people is not said");
  check(within(manifest.delta, 0, 0.1) && within(manifest.epsilonMax, 0, 20), "epsilon_max or delta is out of range");
}

function checkHopNoise({hopNoise, budgetGrid, delta: most}: Manifest): void {
  if (!hopNoise) return;
  const {epsilon, delta} = hopNoise;
  check(epsilon >= 1e-3 && epsilon <= 20, "the epsilon of the hop noise is out of range");
  check(delta >= 1e-12 && delta <= Math.min(1e-3, most), "the delta of the hop noise is out of range");
  check(budgetGrid[0]!.epsilon <= MOST_WITH_HOP_NOISE, "every budget leaves too little noise of one's own beside hop noise: all are above 8");
}

function checkBudgetPrivacy({budgetPrivacy}: Manifest): void {
  if (!budgetPrivacy) return;
  const {epsilon, delta} = budgetPrivacy;
  check(epsilon >= 1e-3 && epsilon <= 20, "the epsilon of the budgets' privacy is out of range");
  check(delta >= 1e-12 && delta <= 1e-3, "the delta of the budgets' privacy is out of range");
}

function checkKeys(manifest: Manifest): void {
  const everyone = keysIn(manifest);
  const accountant = manifest.accountant!;
  check(within(manifest.hops.length, 0, 32), "the number of shufflers is out of range");
  check(everyone.every((keys) => keys.roundId === manifest.roundId), "a service's keys are of another round");
  const tickets = [accountant.reportTicketKey, accountant.parameterTicketKey];
  check(tickets.every((key) => key.length === KEY_BYTES) && !equal(tickets[0]!, tickets[1]!), "the ticket keys are wrong");
  const collector = manifest.collectorPublicKey;
  const sealedTo = [...everyone.map((keys) => keys.publicKey), accountant.releasePublicKey];
  const all = collector.length ? [...sealedTo, collector] : sealedTo;
  check(all.every((key) => key.length === KEY_BYTES), "a key of the round is missing or is not a key");
  check(new Set(all.map(hex)).size === all.length, "two keys of the round are equal");
}
