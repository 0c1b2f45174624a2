// A study: a survey that is asked again and again. Every wave states the whole study, which all services have signed.
import {clone, create, toBinary} from "@bufbuild/protobuf";

import {fetchRound, type Shown} from "./answering.js";
import {type Bytes, context, equal, hex, sha256} from "./bytes.js";
import type {Gateway} from "./calls.js";
import type {Deployment} from "./deployment.js";
import {type Manifest, ManifestSchema, type Study, StudyPeriod, StudySchema, type StudyWave, SurveySchema} from "./gen/croupier/protocol/v1/messages_pb.js";
import type {Consent, Promised} from "./outbox.js";
import {rightAtMost} from "./randomize.js";
import {check, PromiseChanged, Refused} from "./refusals.js";
import type {ShownSurvey} from "./shown_survey.js";

const MOST_WAVES = 4096;
const DAY_S = 86_400;
const NOT_THERE = ["UNKNOWN_ROUND", "NOT_READY"];

/** A wave, with the version of the study that it is of. */
export interface Wave {
  wave: StudyWave;
  study: Study;
}

/** Returns the wave of a study that a round is of; undefined for another round. */
export function waveOf(manifest: Manifest): Wave | undefined {
  const wave = manifest.survey?.wave;
  return wave?.study && {wave, study: wave.study};
}

/** Returns the study that a round is of, by its name, and the number of the wave; undefined for another round. */
export function studyOf(manifest: Manifest): {id: string; wave: number} | undefined {
  const found = waveOf(manifest);
  return found && {id: found.study.studyId, wave: found.wave.number};
}

/** Returns what the rounds of a wave promise for all versions of their study. */
export function promisedBy({rounds}: Pick<ShownSurvey, "rounds">, {study}: Wave): Promised {
  const {totalEpsilon, totalDelta, results, permanent} = study;
  const collectors = [...new Set(rounds.map(({terms}) => hex(terms.manifest.collectorPublicKey)))].sort();
  return {totalEpsilon, totalDelta, results, permanent, collectors};
}

/** Checks that a wave continues what a person has consented to here: no version changes the limit, who reads the results or
 * whether noise is drawn once, and each version follows the one before. Throws PromiseChanged, which names what differs. */
export function checkContinues(known: Consent, shown: Pick<ShownSurvey, "rounds">, wave: Wave): void {
  const {version, previousHash} = wave.study;
  const says = promisedBy(shown, wave);
  for (const [name, before] of Object.entries(known.promised)) {
    const now = says[name as keyof Promised];
    if (String(before) !== String(now)) throw new PromiseChanged(`version ${version} of the study changes ${name} from ${before} to ${now}`);
  }
  const hash = hex(studyHash(wave.study));
  const follows =
    version === known.version ? hash === known.hash : version > known.version && (version > known.version + 1 || hex(previousHash) === known.hash);
  if (!follows) throw new PromiseChanged(`version ${version} of the study does not follow version ${known.version}`);
}

export const studyHash = (study: Study): Bytes => sha256(context("study"), toBinary(StudySchema, study));

/** Checks the wave of a study that a round is of: the study fixes the round's texts, terms and deadline. */
export function checkWaveOf(manifest: Manifest): void {
  const {survey} = manifest;
  if (!survey?.wave) return;
  const {study, number, closesUnixS} = survey.wave;
  check(study !== undefined, "the wave states no study");
  check(/^[A-Za-z0-9_-]{1,40}$/.test(study.studyId), "the study's name is not one");
  check(number >= study.firstWave && number <= study.lastWave && study.lastWave <= MOST_WAVES, "the study has no such wave");
  check(survey.surveyId === `${study.studyId}-w${number}`, "the survey has not the name of its wave");
  check(manifest.roundId.startsWith(`${survey.surveyId}-`), "the round has not the name of its wave");
  check(manifest.closeDeadlineUnixS === closesUnixS, "the round has another deadline than its wave");
  const texts = create(SurveySchema, {wordings: survey.wordings, leftOut: survey.leftOut});
  check(equal(study.textsHash, sha256(context("study-texts"), toBinary(SurveySchema, texts))), "the study has other texts");
  const terms = clone(ManifestSchema, manifest);
  const ofRound = {roundId: "", closeDeadlineUnixS: 0n, hops: [], accountant: undefined, analyzer: undefined, survey: undefined};
  Object.assign(terms, ofRound);
  const stated = study.questionHashes[survey.rounds.findIndex((one) => one.roundId === manifest.roundId)];
  const made = sha256(context("study-question"), toBinary(ManifestSchema, terms));
  check(stated !== undefined && equal(stated, made), "the study has other terms for this question");
}

/** Returns the first round of the newest wave that was opened, from any round of the study on. */
export async function newestWave(gateway: Gateway, deployment: Deployment, shown: Shown): Promise<Shown> {
  const found = waveOf(shown.terms.manifest);
  if (!found) return shown;
  let newest = shown;
  for (let number = found.wave.number + 1; number <= MOST_WAVES; number += 1) {
    try {
      newest = await fetchRound(gateway, deployment, `${found.study.studyId}-w${number}-1`);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (NOT_THERE.includes(error.code)) break;
      if (error.code !== "WRONG_STATE") throw error; // the wave is deleted
    }
  }
  return newest;
}

/** Returns when the next wave opens, in milliseconds; undefined after the last one. Where the clocks are changed in
 * between it is an hour off. */
export function nextWave({wave, study}: Wave): number | undefined {
  const days = {[StudyPeriod.DAY]: 1, [StudyPeriod.WEEK]: 7}[study.calendar?.every as number];
  if (wave.number >= study.lastWave || !days) return undefined;
  return 1000 * (Number(wave.opensUnixS) + days * DAY_S);
}

/** Returns how many waves a version of a study has: an earlier one had other budgets, which nothing here knows. */
export function wavesOfVersion({study}: Wave): number {
  return study.lastWave - study.firstWave + 1;
}

/** Returns how often someone is right at most about the answers to all waves of a version together: if no server is
 * honest, and if one is; the latter only where every question has hop noise. In a permanent study about answers that stay
 * the same: the report does, and no wave reveals more of it. */
export function allWavesAtMost({rounds, totals}: ShownSurvey, wave: Wave, place: number): {alone: number; honest?: number} {
  const waves = wavesOfVersion(wave);
  const alone = rightAtMost((wave.study.permanent ? 1 : waves) * totals[place]!);
  const noises = rounds.map(({terms}) => terms.manifest.hopNoise);
  if (!noises.every((one) => one !== undefined)) return {alone};
  const [epsilon, delta] = [noises.reduce((sum, one) => sum + one.epsilon, 0), noises.reduce((sum, one) => sum + one.delta, 0)];
  return {alone, honest: Math.min(alone, rightAtMost(waves * epsilon, Math.min(1, waves * delta)))};
}
