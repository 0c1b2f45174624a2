// A survey: rounds under one description that every manifest of them holds, and the key that an invitation to it gives.
import {clone, toBinary} from "@bufbuild/protobuf";
import {hkdf} from "@noble/hashes/hkdf.js";
import {sha256 as hash} from "@noble/hashes/sha2.js";

import {type Bytes, concat, context, copy, equal, hex, sha256, utf8} from "./bytes.js";
import {LeftOut, type Manifest, ManifestSchema, type Survey, SurveySchema} from "./gen/croupier/protocol/v1/messages_pb.js";
import {check} from "./refusals.js";
import {checkSurveyWordings} from "./shown.js";

export const surveyBytes = (survey: Survey): Bytes => copy(toBinary(SurveySchema, survey));

/** Returns what invitations are bound to: the description of the survey, or the study that it is a wave of. */
export const invitationHash = (survey: Survey): Bytes => {
  const study = survey.wave?.study;
  return study ? studyInvitationHash(study.studyId) : surveyHash(survey);
};

export const studyInvitationHash = (studyId: string): Bytes => sha256(context("study-invitation"), utf8(studyId));

/** The waves of a permanent study's question, in which a person sends the same report: a name, and how many there may be. */
export interface Series {
  name: string;
  waves: number;
}

/** Returns the series of a permanent study that a round is a wave of; undefined where each wave is randomized by itself.
 * With other terms, or another last wave, a question is another series, with other reports. */
export function seriesOf({deployment, roundId, survey}: Manifest): Series | undefined {
  const study = survey?.wave?.study;
  if (!study?.permanent) return undefined;
  const place = survey!.rounds.findIndex((one) => one.roundId === roundId);
  const named = utf8([deployment, study.studyId, place, study.lastWave, ""].join("\0"));
  return {name: hex(sha256(context("permanent"), named, study.questionHashes[place]!)), waves: study.lastWave};
}

export const surveyHash = (survey: Survey): Bytes => sha256(context("survey"), surveyBytes(survey));

/** Returns the hash by which a survey names the terms of a round: all of the manifest but the keys and the survey. */
export function statedTermsHash(manifest: Manifest): Bytes {
  const terms = clone(ManifestSchema, manifest);
  Object.assign(terms, {hops: [], accountant: undefined, analyzer: undefined, survey: undefined});
  return sha256(context("survey-round"), toBinary(ManifestSchema, terms));
}

/** Checks the survey of a manifest, where there is one: it names the round with these terms. */
export function checkSurveyOf(manifest: Manifest): void {
  const {survey} = manifest;
  if (!survey) return;
  check(/^[A-Za-z0-9_-]{1,64}$/.test(survey.surveyId), "the survey's name is not one");
  checkSurveyWordings(survey.wordings);
  const ids = survey.rounds.map((one) => one.roundId);
  check(ids.length > 0 && ids.length <= 64 && new Set(ids).size === ids.length, "the survey's rounds are not a list of rounds");
  check([LeftOut.MISSING, LeftOut.RANDOM].includes(survey.leftOut), "what is sent for a question that is left out is not said");
  const stated = survey.rounds.find((one) => one.roundId === manifest.roundId);
  check(stated !== undefined && equal(stated.termsHash, statedTermsHash(manifest)), "the survey states other terms for this round");
}

/** Returns the Ed25519 private key that signs the answers of the person who has this invitation. */
export const invitedKey = (secret: Bytes, survey: Bytes): Bytes =>
  copy(hkdf(hash, secret, undefined, concat(context("invitation"), survey), 32));
