// The manifest of a round, with its survey: verified and checked as docs/another-language.md says, or refused.
import {type Bytes, equal, hex} from "./bytes.js";
import {chain, type Deployment} from "./deployment.js";
import {decode, decodeCanonical, documentHash, signedBy} from "./documents.js";
import {type Manifest, ManifestSchema, type RoundKeys, type SignedRound} from "./gen/croupier/protocol/v1/messages_pb.js";
import {check} from "./refusals.js";
import {checkPlace, KEY_BYTES, type QuestionTerms, readSurvey, roundIdOf, surveyHash} from "./survey.js";

/** The terms of a round, which have passed every check. */
export interface Terms extends QuestionTerms {
  manifest: Manifest;
  payload: Bytes;
  hash: Bytes;
  roundId: string;
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

/** Returns the terms of the round that a service has shown; Distrust or NeedsProgram if they cannot be answered. */
export function readRound(document: SignedRound | undefined, deployment: Deployment, asked = ""): Terms {
  check(document?.manifest !== undefined, "the manifest is missing");
  const time = timeOf(decode("manifest", ManifestSchema, document.manifest.payload));
  const names = chain(deployment).map((service) => service.name);
  const payload = signedBy("manifest", document.manifest, deployment, names, time);
  const manifest = decodeCanonical("manifest", ManifestSchema, payload);
  check(equal(manifest.surveyHash, surveyHash(document.survey)), "the manifest is of another survey");
  const survey = readSurvey(document.survey);
  checkPlace(survey, deployment);
  const question = survey.questions[manifest.question];
  check(question !== undefined, "the survey has no such question");
  checkWave(manifest, question);
  const roundId = roundIdOf(survey, manifest.question, manifest.wave);
  check(!asked || roundId === asked, "the manifest is of another round");
  checkKeys(manifest, question, roundId, names);
  return {...question, manifest, payload, hash: documentHash("manifest", payload), roundId, time};
}

function checkWave({wave, opensUnixS, closesUnixS}: Manifest, {survey}: QuestionTerms): void {
  const {schedule} = survey.message;
  const {firstWave, lastWave, calendar} = schedule ?? {firstWave: 0, lastWave: 0};
  check(wave >= firstWave && wave <= lastWave, "the survey has no such wave");
  check(closesUnixS - opensUnixS === BigInt(calendar?.openForS ?? 0), "the wave is open for another time than the calendar says");
  check(schedule !== undefined || !opensUnixS, "the survey has no waves, and the round the times of one");
}

function checkKeys(manifest: Manifest, {survey}: QuestionTerms, roundId: string, names: string[]): void {
  const everyone = keysIn(manifest);
  const accountant = manifest.accountant!;
  const services = everyone.map((keys) => keys.service);
  check(services.join("\n") === names.join("\n"), "the manifest names other services, or in another order");
  check(manifest.hops.length === survey.message.numHops, "the survey is for another number of shufflers");
  check(everyone.every((keys) => keys.roundId === roundId), "a service's keys are of another round");
  const tickets = [accountant.reportTicketKey, accountant.parameterTicketKey];
  check(tickets.every((key) => key.length === KEY_BYTES) && !equal(tickets[0]!, tickets[1]!), "the ticket keys are wrong");
  const collector = survey.message.collectorPublicKey;
  const sealedTo = [...everyone.map((keys) => keys.publicKey), accountant.releasePublicKey];
  const all = collector.length ? [...sealedTo, collector] : sealedTo;
  check(all.every((key) => key.length === KEY_BYTES), "a key of the round is missing or is not a key");
  check(new Set(all.map(hex)).size === all.length, "two keys of the round are equal");
}

/** Returns when a round takes no more answers, in milliseconds; undefined: when the operator closes it. */
export function deadlineOf({manifest, survey}: Terms): number | undefined {
  return 1000 * Number(manifest.closesUnixS || survey.message.closeDeadlineUnixS) || undefined;
}
