// A survey that hop 1 has shown: all rounds of its newest wave, checked to belong together.
import {fetchRound, type Shown} from "./answering.js";
import {equal} from "./bytes.js";
import type {Gateway} from "./calls.js";
import type {Deployment} from "./deployment.js";
import {LeftOut} from "./gen/croupier/protocol/v1/messages_pb.js";
import {rightAtMost} from "./randomize.js";
import {check, Refused} from "./refusals.js";
import {MOST_WAVES, wavesOfVersion} from "./schedule.js";
import {roundIdOf, type Survey} from "./survey.js";

const NOT_THERE = ["UNKNOWN_ROUND", "NOT_READY"];

export interface ShownSurvey {
  survey: Survey;
  /** 0 of a survey that is asked once. */
  wave: number;
  /** In the order of the questions. */
  rounds: Shown[];
  /** Whether hop 1 says that every round is open. */
  open: boolean;
}

/** Returns whether an answer is drawn and sent for a question that is left out. */
export const hidesLeftOut = ({message}: Survey): boolean => message.leftOut === LeftOut.RANDOM;

/** Returns all rounds of the survey and wave that a round is of, after checking that they belong together. */
export async function fetchSurvey(gateway: Gateway, deployment: Deployment, asked: Shown): Promise<ShownSurvey> {
  const {survey, roundId, manifest} = asked.terms;
  const rounds: Shown[] = [];
  for (const {place} of survey.questions) {
    const name = roundIdOf(survey, place, manifest.wave);
    rounds.push(name === roundId ? asked : await fetchRound(gateway, deployment, name));
  }
  const same = ({terms}: Shown) => equal(terms.survey.hash, survey.hash) && terms.manifest.opensUnixS === manifest.opensUnixS;
  check(rounds.every(same), "the rounds are not of one survey");
  return {survey, wave: manifest.wave, rounds, open: rounds.every((one) => one.open)};
}

/** Returns the first round of the newest wave that was opened, from any round of the survey on. */
export async function newestWave(gateway: Gateway, deployment: Deployment, shown: Shown): Promise<Shown> {
  const {survey, manifest} = shown.terms;
  let newest = shown;
  for (let wave = manifest.wave + 1; survey.message.schedule && wave <= MOST_WAVES; wave += 1) {
    try {
      newest = await fetchRound(gateway, deployment, roundIdOf(survey, 0, wave));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (NOT_THERE.includes(error.code)) break;
      if (error.code !== "WRONG_STATE") throw error; // the wave is deleted
    }
  }
  return newest;
}

/** Returns how often someone is right at most about the answers to all waves of a version together: if no server is
 * honest, and if one is; the latter only with hop noise. In a permanent study about answers that stay the same: the report
 * does, and no wave reveals more of it. */
export function allWavesAtMost({message, questions, totals}: Survey, place: number): {alone: number; honest?: number} {
  const {schedule, hopNoise} = message;
  const waves = wavesOfVersion(schedule!);
  const alone = rightAtMost((schedule!.permanent ? 1 : waves) * totals[place]!);
  if (!hopNoise) return {alone};
  const all = waves * questions.length;
  return {alone, honest: Math.min(alone, rightAtMost(all * hopNoise.epsilon, Math.min(1, all * hopNoise.delta)))};
}
