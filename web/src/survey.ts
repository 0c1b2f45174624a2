// A survey: what people are asked and consent to, in bytes that all its rounds name by their hash (croupier/protocol/surveys.py).
import {create, toBinary} from "@bufbuild/protobuf";
import {hkdf} from "@noble/hashes/hkdf.js";
import {sha256 as hash} from "@noble/hashes/sha2.js";

import {type Bytes, concat, context, copy, equal, hex, sha256, utf8} from "./bytes.js";
import {decimalSum} from "./counting.js";
import type {Deployment} from "./deployment.js";
import {decodeCanonical} from "./documents.js";
import {
  LeftOut,
  type LocalBudget,
  type Question,
  Results,
  ShortBatchPolicy,
  type Survey as SurveyMessage,
  SurveySchema,
} from "./gen/croupier/protocol/v1/messages_pb.js";
import {type Answerable, readQuestion} from "./question.js";
import {check, NeedsProgram, PromiseChanged} from "./refusals.js";
import {checkSchedule} from "./schedule.js";
import {checkSurveyWordings} from "./shown.js";

const SUITES = ["x25519-sha256-chacha20poly1305", "x25519-sha256-aes128gcm"];
const OTHER_SUITES = ["mlkem768x25519-sha256-chacha20poly1305"];
export const KEY_BYTES = 32;

/** The largest local budget that this page offers in a survey with hop noise: if no server is honest, nothing else protects
 * the person. */
const MOST_WITH_HOP_NOISE = 8;

/** What all rounds of a question have in common. */
export interface QuestionTerms {
  survey: Survey;
  /** From 0. */
  place: number;
  question: Question;
  asked: Answerable;
  grid: LocalBudget[];
  /** Those of the grid that this page offers: as many for every question of the survey. */
  budgets: number[];
}

/** A survey that has passed every check. */
export interface Survey {
  bytes: Bytes;
  hash: Bytes;
  message: SurveyMessage;
  questions: QuestionTerms[];
  /** The ε of the answers to all questions together, for each place in the budgets. */
  totals: number[];
}

/** The waves of a permanent survey's question, in which a person sends the same report: a name, and how many there may be. */
export interface Series {
  name: string;
  waves: number;
}

const within = (value: number, low: number, high: number): boolean => low < value && value <= high;

export const surveyHash = (bytes: Uint8Array): Bytes => sha256(context("survey"), bytes);

let newest: Survey | undefined;

/** Returns the survey that canonical bytes state; Distrust or NeedsProgram if it cannot be answered. The survey that was
 * read last is not read again. */
export function readSurvey(bytes: Uint8Array): Survey {
  if (newest && equal(newest.bytes, bytes)) return newest;
  const message = decodeCanonical("survey", SurveySchema, bytes);
  const ruled = message.questions.find(({rule}) => rule.case);
  if (ruled) throw new NeedsProgram(String(ruled.rule.case));
  checkTerms(message);
  const survey: Survey = {bytes: copy(bytes), hash: surveyHash(bytes), message, questions: [], totals: []};
  const {questions, hopNoise} = message;
  check(within(questions.length, 0, 64), "the number of questions is out of range");
  const asked = questions.map(({question}) => readQuestion(question));
  const grids = questions.map(({budgetGrid}) => checkGrid(budgetGrid));
  check(new Set(grids.map((grid) => grid.length)).size === 1, "the questions have different numbers of budgets");
  const offered = Math.min(...grids.map((grid) => grid.filter(({epsilon}) => !hopNoise || epsilon <= MOST_WITH_HOP_NOISE).length));
  check(offered > 0, "every budget leaves too little noise of one's own beside hop noise: all are above 8");
  survey.questions = questions.map(({question}, place) => {
    const grid = grids[place]!;
    return {survey, place, question: question!, asked: asked[place]!, grid, budgets: grid.slice(0, offered).map((one) => one.epsilon)};
  });
  survey.totals = survey.questions[0]!.budgets.map((_, at) => decimalSum(survey.questions.map(({budgets}) => budgets[at]!)));
  return (newest = survey);
}

function checkTerms(message: SurveyMessage): void {
  const {surveyId, schedule, hpkeSuite, numHops, minBatchSize: least, maxBatchSize: most, collectorPublicKey: collector} = message;
  check(message.protocolVersion === 1, "the survey is of another version of the protocol");
  check(/^[A-Za-z0-9_-]{1,64}$/.test(surveyId) && (!schedule || surveyId.length <= 40), "the survey's name is not one");
  check(!/-w[0-9]+(-|$)/.test(surveyId), "the survey has the name of a wave");
  checkSurveyWordings(message.wordings);
  check([LeftOut.MISSING, LeftOut.RANDOM].includes(message.leftOut), "what is sent for a question that is left out is not said");
  if (OTHER_SUITES.includes(hpkeSuite)) throw new NeedsProgram(hpkeSuite);
  check(SUITES.includes(hpkeSuite), "the suite is not known to this page");
  check(within(numHops, 0, 32), "the number of shufflers is out of range");
  check(least >= 2 && (most === 0 || most >= least), "the number of people is out of range");
  const policies = [ShortBatchPolicy.HOLD, ShortBatchPolicy.DISPOSE];
  check(policies.includes(message.shortBatchPolicy), "what happens with too few people is not said");
  check(within(message.delta, 0, 0.1) && within(message.epsilonMax, 0, 20), "epsilon_max or delta is out of range");
  checkNoise("hop noise", message.hopNoise, 1e-3);
  checkNoise("budgets' privacy", message.budgetPrivacy, 1e-3);
  check([0, KEY_BYTES].includes(collector.length), "the key of the results is not a key");
  if (!schedule) return;
  checkSchedule(schedule);
  check(!message.closeDeadlineUnixS, "the survey has a deadline beside its schedule");
  check((collector.length === 0) === (schedule.results === Results.PUBLIC), "the results are for others than the schedule says");
}

function checkNoise(what: string, noise: {epsilon: number; delta: number} | undefined, most: number): void {
  if (!noise) return;
  check(noise.epsilon >= 1e-3 && noise.epsilon <= 20, `the epsilon of the ${what} is out of range`);
  check(noise.delta >= 1e-12 && noise.delta <= most, `the delta of the ${what} is out of range`);
}

function checkGrid(grid: LocalBudget[]): LocalBudget[] {
  check(within(grid.length, 0, 4096), "the number of budgets is out of range");
  grid.forEach(({epsilon, delta, epsilonMax}, at) => {
    check(within(epsilon, 1e-9, 20) && delta === 0, "a budget is out of range");
    check(epsilonMax === undefined || within(epsilonMax, 0, 20), "the limit of a budget is out of range");
    check(at === 0 || epsilon > grid[at - 1]!.epsilon, "the budgets are not in ascending order");
  });
  return grid;
}

/** Checks that a survey is this deployment's: its name and its privacy limit. */
export function checkPlace({message}: Survey, deployment: Deployment): void {
  const {privacyLimit: limit} = message;
  check(message.deployment === deployment.name, "the survey is of another deployment");
  const stated = limit && [limit.totalEpsilon, limit.totalDelta, limit.maxRounds, limit.fixedTerms];
  const pinned = deployment.privacyLimit;
  const ours = pinned && [pinned.total_epsilon, pinned.total_delta, pinned.max_rounds, pinned.fixed_terms];
  check(String(stated ?? null) === String(ours ?? null), "the survey states another privacy limit");
}

/** Returns whether a survey is nothing but one question: no text of its own, and no waves. */
export const isOneQuestion = ({message, questions}: Survey): boolean =>
  questions.length === 1 && !message.wordings.length && !message.schedule;

/** Returns the name of a round; wave 0: of a survey that is asked once. */
export function roundIdOf({message, questions}: Survey, place: number, wave: number): string {
  const {surveyId, schedule} = message;
  if (!schedule && questions.length === 1) return surveyId;
  return `${surveyId}${wave ? `-w${wave}` : ""}-${place + 1}`;
}

/** Returns what invitations are bound to: the survey, or with a schedule its name, for all its versions. */
export const invitationHash = ({hash, message: {schedule, surveyId}}: Pick<Survey, "hash" | "message">): Bytes =>
  schedule ? sha256(context("invitation-list"), utf8(surveyId)) : hash;

/** Returns the Ed25519 private key that signs the answers of the person who has this invitation. */
export const invitedKey = (secret: Bytes, invited: Bytes): Bytes =>
  copy(hkdf(hash, secret, undefined, concat(context("invitation"), invited), 32));

/** Returns the series of a permanent survey that a question is; undefined where each wave is randomized by itself. With
 * other terms, or another last wave, a question is another series, with other reports. */
export function seriesOf({survey: {message}, place}: QuestionTerms): Series | undefined {
  const {schedule, questions} = message;
  if (!schedule?.permanent) return undefined;
  const terms = {...message, wordings: [], questions: [questions[place]!], leftOut: LeftOut.UNSPECIFIED, schedule: undefined};
  const named = utf8(`${place}\0${schedule.lastWave}\0`);
  const name = hex(sha256(context("permanent"), named, toBinary(SurveySchema, create(SurveySchema, terms))));
  return {name, waves: schedule.lastWave};
}

/** What no version of a survey changes. */
const promisesOf = ({message: {schedule, collectorPublicKey}}: Survey) => ({
  totalEpsilon: schedule?.totalEpsilon,
  totalDelta: schedule?.totalDelta,
  permanent: schedule?.permanent,
  results: schedule?.results,
  collector: hex(collectorPublicKey),
});

/** Checks that a version follows another one of the same survey, to which a person has consented, and keeps what that one
 * promises. Throws PromiseChanged, which names what differs.
 *
 * versionOf: returns the version that a wave is of. */
export async function checkContinues(known: Survey, newer: Survey, versionOf: (wave: number) => Promise<Survey>): Promise<void> {
  const named = ({message}: Survey) => `version ${message.schedule?.version} of the study`;
  const says: Record<string, unknown> = promisesOf(newer);
  for (const [name, before] of Object.entries(promisesOf(known))) {
    const now = says[name];
    if (before !== now) throw new PromiseChanged(`${named(newer)} changes ${name} from ${before} to ${now}`);
  }
  for (let link = newer; !equal(link.hash, known.hash); ) {
    const {version = 0, previousHash = link.hash, firstWave = 0} = link.message.schedule ?? {};
    if (equal(previousHash, known.hash)) return;
    const before = version > (known.message.schedule?.version ?? 0) + 1 && firstWave > 1 ? await versionOf(firstWave - 1) : known;
    if (!equal(before.hash, previousHash)) throw new PromiseChanged(`${named(newer)} does not follow ${named(known)}`);
    link = before;
  }
}
