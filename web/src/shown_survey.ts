// A survey that hop 1 has shown: all its rounds, checked to belong together.
import {fetchRound, type Shown} from "./answering.js";
import {equal, hex} from "./bytes.js";
import type {Gateway} from "./calls.js";
import {decimalSum} from "./counting.js";
import type {Deployment} from "./deployment.js";
import {LeftOut, type Survey} from "./gen/croupier/protocol/v1/messages_pb.js";
import {check} from "./refusals.js";
import {waveOf, type Wave} from "./study.js";
import {invitationHash, surveyBytes, surveyHash} from "./survey.js";

export interface ShownSurvey {
  survey: Survey;
  /** The hash of the description, in hexadecimal. */
  hash: string;
  rounds: Shown[];
  /** The ε of all answers together, for each place in the rounds' budgets. */
  totals: number[];
  /** Whether hop 1 says that every round is open. */
  open: boolean;
  /** What the key of an invitation follows from, in hexadecimal. */
  invited: string;
  /** The wave of a study that the survey is, where it is one. */
  wave?: Wave;
  /** Whether an answer is drawn and sent for a question that is left out. */
  hidesLeftOut: boolean;
}

/** Returns the whole survey of a round, after checking that its rounds belong together. */
export async function fetchSurvey(gateway: Gateway, deployment: Deployment, asked: Shown, survey: Survey): Promise<ShownSurvey> {
  const rounds: Shown[] = [];
  for (const {roundId} of survey.rounds) {
    rounds.push(roundId === asked.terms.roundId ? asked : await fetchRound(gateway, deployment, roundId));
  }
  const described = surveyBytes(survey);
  const same = ({terms}: Shown) => terms.manifest.survey !== undefined && equal(surveyBytes(terms.manifest.survey), described);
  check(rounds.every(same), "the rounds are not of one survey");
  const [first] = rounds.map((one) => one.terms);
  const alike = ({terms}: Shown) =>
    terms.budgets.length === first!.budgets.length && terms.manifest.closeDeadlineUnixS === first!.manifest.closeDeadlineUnixS;
  check(rounds.every(alike), "the rounds of the survey have different deadlines or numbers of budgets");
  return {
    survey,
    hash: hex(surveyHash(survey)),
    invited: hex(invitationHash(survey)),
    wave: waveOf(first!.manifest),
    rounds,
    totals: first!.budgets.map((_, place) => decimalSum(rounds.map(({terms}) => terms.budgets[place]!))),
    open: rounds.every((one) => one.open),
    hidesLeftOut: survey.leftOut === LeftOut.RANDOM,
  };
}
