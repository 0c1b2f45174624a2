// One person's answer to one round: randomized once, stored before it is sent, and the same bytes until it is accepted.
import {fromBinary, toBinary} from "@bufbuild/protobuf";
import {ed25519} from "@noble/curves/ed25519.js";

import {type Bytes, copy, hex} from "./bytes.js";
import type {Gateway} from "./calls.js";
import type {Deployment} from "./deployment.js";
import {decode} from "./documents.js";
import {RoundState, SignedRoundSchema, SubmissionCode, SubmissionSchema} from "./gen/croupier/protocol/v1/messages_pb.js";
import {readRound, type Terms} from "./manifest.js";
import {type Answer, answerId, type Outbox} from "./outbox.js";
import {encodeReport, randomize} from "./randomize.js";
import {check, NeedsProgram, Refused} from "./refusals.js";
import {Round} from "./round.js";
import {invitationHash, seriesOf} from "./survey.js";

/** Steps of an answer, in order. */
export type Step = "randomize" | "tickets" | "seal" | "send" | "accepted";

/** The terms of a round that hop 1 has shown, the SignedRound they come from, and whether hop 1 says that it is open. */
export interface Shown {
  terms: Terms;
  document: Bytes;
  open: boolean;
}

/** What keeps the answers of a person, durably: the browser's outbox, or what another program has. */
export type Kept = Pick<Outbox, "advance" | "discard">;

export async function fetchRound(gateway: Gateway, deployment: Deployment, roundId = ""): Promise<Shown> {
  const {round, state} = await gateway.call("GetRound", {roundId});
  const terms = readRound(round, deployment, roundId);
  return {terms, document: copy(toBinary(SignedRoundSchema, round!)), open: state === RoundState.OPEN};
}

/** Returns the terms of the round that a stored answer is for. */
export function termsOf(answer: Answer, deployment: Deployment): Terms {
  return readRound(decode("round", SignedRoundSchema, answer.round), deployment, answer.roundId);
}

/** Randomizes an answer, for `Outbox.begin`; in a permanent survey it is the report that is kept for it (`Outbox.keepReport`). */
export async function prepareAnswer(
  {terms, document}: Shown,
  title: string,
  value: number,
  epsilon: number,
  privateKey: Bytes,
  kept?: Bytes,
): Promise<Answer> {
  const series = seriesOf(terms);
  if (series !== undefined && !kept) throw new NeedsProgram("permanent");
  check(terms.budgets.includes(epsilon), "the budget is not one of the round");
  const clientKey = hex(ed25519.getPublicKey(privateKey));
  const {deployment, surveyId} = terms.survey.message;
  const id = answerId(deployment, terms.roundId, clientKey);
  const report = series === undefined ? drawReport(terms, value, epsilon) : kept!;
  const prepared = {...(await new Round(terms).prepare(report, epsilon, privateKey)), privateKey};
  return {
    id,
    deployment,
    surveyId,
    wave: terms.manifest.wave,
    roundId: terms.roundId,
    clientKey,
    title,
    invited: hex(invitationHash(terms.survey)),
    round: document,
    epsilon,
    state: "prepared",
    at: Date.now(),
    prepared,
    series,
  };
}

/** Returns a randomized report of an answer, as it travels. */
export const drawReport = ({asked}: Terms, value: number, epsilon: number): Bytes => encodeReport(randomize(asked, value, epsilon));

/** Returns the one code of an answer, which must be one that the protocol has. */
function onlyCode(codes: SubmissionCode[]): SubmissionCode {
  const [code] = codes;
  check(codes.length === 1 && code !== undefined && code !== 0 && code in SubmissionCode, "the service's answer has no code of the protocol");
  return code;
}

const refusal = (code: SubmissionCode): Refused => new Refused(SubmissionCode[code]!, "the service refuses", false);

/** Asks the accountant whether a key may answer these rounds, before a person is asked anything; nothing is stored there.
 * Throws Refused with the code that an answer would get. */
export async function checkAdmission(gateway: Gateway, rounds: Shown[], privateKey: Bytes): Promise<void> {
  for (const {terms} of rounds) {
    const request = fromBinary(SubmissionSchema, new Round(terms).sign("tickets", new Uint8Array(), privateKey));
    const {codes} = await gateway.call("GetTickets", {roundId: terms.roundId, requests: [request]});
    const code = onlyCode(codes);
    if (code !== SubmissionCode.ACCEPTED) throw refusal(code);
  }
}

/** Brings a stored answer as far as it comes, and returns it; the same bytes are sent, however often this is called. */
export async function goOn(
  gateway: Gateway,
  outbox: Kept,
  deployment: Deployment,
  stored: Answer,
  step: (step: Step) => void,
): Promise<Answer> {
  let answer = stored;
  if (answer.state === "prepared") answer = await sealWithTickets(gateway, outbox, deployment, answer, step);
  if (answer.state === "sealed") {
    step("send");
    check(answer.submission !== undefined, "the sealed answer is more than 30 days old, and forgotten");
    const submissions = [fromBinary(SubmissionSchema, answer.submission)];
    const {codes} = await gateway.call("Submit", {roundId: answer.roundId, submissions});
    const code = onlyCode(codes);
    if (code !== SubmissionCode.ACCEPTED) throw refusal(code);
    answer = await outbox.advance(answer.id, "sealed", ({submission: _, ...kept}) => ({...kept, state: "accepted"}));
  }
  step("accepted");
  return answer;
}

async function sealWithTickets(
  gateway: Gateway,
  outbox: Kept,
  deployment: Deployment,
  answer: Answer,
  step: (step: Step) => void,
): Promise<Answer> {
  const {prepared} = answer;
  check(prepared !== undefined, "the answer is more than 30 days old, and forgotten");
  const round = new Round(termsOf(answer, deployment));
  step("tickets");
  const requests = [fromBinary(SubmissionSchema, prepared.request)];
  const given = await gateway.call("GetTickets", {roundId: answer.roundId, requests});
  const code = onlyCode(given.codes);
  if (code !== SubmissionCode.ACCEPTED) {
    await outbox.discard(answer);
    throw refusal(code);
  }
  step("seal");
  const {submission, inclusion} = await round.wrap(
    prepared,
    [given.reportEvaluations, given.parameterEvaluations],
    prepared.privateKey,
  );
  return outbox.advance(answer.id, "prepared", ({prepared: _, ...kept}) => ({
    ...kept,
    state: "sealed",
    submission,
    inclusion,
  }));
}
