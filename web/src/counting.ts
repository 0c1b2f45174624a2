// What a device has sent and spent: which person an answer belongs to, how often a person is asked, and what it costs. By
// these rules the outbox decides in its transactions, as client/outbox.py does.
//
// All of it is kept by deployment and survey, not by key: another key in this browser is another person only if the person
// says so. A person is named by the key with which they answered first.
import type {Answer, KeptReport} from "./outbox.js";
import type {Series} from "./survey.js";

/** The person's own limit does not allow another answer. */
export class LimitExceeded extends Error {
  constructor(
    readonly spent: number,
    readonly limit: number,
  ) {
    super("the person's own limit");
  }
}

/** A permanent survey's question was answered with a larger budget before, which another answer would spend again. */
export class LargerBefore extends Error {
  constructor(readonly epsilon: number) {
    super("a larger budget before");
  }
}

/** The same survey was answered here under other keys, and the person has not said who they are. */
export class OtherPerson extends Error {
  constructor(readonly persons: Person[]) {
    super("answered under another key");
  }
}

/** The person has answered a permanent survey's question as often as it was fixed for. */
export class SeriesFull extends Error {
  constructor(readonly waves: number) {
    super("all waves were answered");
  }
}

/** Someone who has answered here: the key that names them, and when their newest answer was given, in milliseconds; 0 where
 * only what they have spent is left. */
export interface Person {
  name: string;
  at: number;
}

type Owned = Pick<Answer, "clientKey" | "person">;

/** Returns the name of the person that an answer or a report belongs to. */
export const personOf = ({person, clientKey}: Owned): string => person ?? clientKey;

/** What an answer is of: a survey, and its wave; 0 of a survey that is asked once. */
export type Asked = Pick<Answer, "surveyId" | "wave">;

/**
 * Returns whom a key answers for.
 *
 * said: what the person has said: their name, or this key if they are another person; undefined where they were not asked.
 */
export function whose(asked: Asked, clientKey: string, answers: Answer[], kept: KeptReport[], said?: string): string {
  const known = [...answers, ...kept].filter((one) => one.surveyId === asked.surveyId);
  const mine = known.find((one) => one.clientKey === clientKey);
  if (mine) return personOf(mine);
  if (said !== undefined || !known.length) return said ?? clientKey;
  const newest = new Map<string, number>();
  for (const one of known) newest.set(personOf(one), Math.max(newest.get(personOf(one)) ?? 0, "at" in one ? one.at : 0));
  throw new OtherPerson([...newest].map(([name, at]) => ({name, at})));
}

/** Returns a person's answers to the same wave, in the order in which they were given: a wave is answered once, whatever
 * version of the survey, and whatever rounds of it, are shown later. */
export function answeredBefore({surveyId, wave}: Asked, person: string, answers: Answer[]): Answer[] {
  const same = answers.filter((one) => one.surveyId === surveyId && one.wave === wave && personOf(one) === person);
  return same.sort((one, other) => one.at - other.at);
}

/** Throws SeriesFull if a round would be one more of a permanent survey's question than the question was fixed for. */
export function checkSeries(roundId: string, {name, waves}: Series, person: string, answers: Answer[]): void {
  const mine = answers.filter((one) => one.series?.name === name && personOf(one) === person);
  if (new Set([roundId, ...mine.map((one) => one.roundId)]).size > waves) throw new SeriesFull(waves);
}

/** Throws LimitExceeded for what would spend more and go beyond the person's own limit; a report that is sent again spends
 * nothing more. */
export function checkLimit(before: number, after: number, limit: number | undefined): void {
  if (limit !== undefined && after > before && after > limit) throw new LimitExceeded(before, limit);
}

/** Adds decimals: a number means its shortest decimal form, so that three times 0.1 is 0.3 and no more. */
export function decimalSum(values: number[]): number {
  const parts = values.map((value) => {
    const [, whole = "0", rest = "", exponent = "0"] = /^(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/.exec(String(value)) ?? [];
    return {digits: BigInt(whole + rest), exponent: Number(exponent) - rest.length};
  });
  const least = Math.min(0, ...parts.map((part) => part.exponent));
  const sum = parts.reduce((total, part) => total + part.digits * 10n ** BigInt(part.exponent - least), 0n);
  return Number(`${sum}e${least}`);
}

/** Returns what the other rounds have spent; a person answers a round once, so of each round the most counts. The waves of
 * a permanent survey have spent what the different reports of one person have, of the persons the most. */
export function spent(answers: Answer[], kept: KeptReport[], without: string[] = []): number {
  const most = new Map<string, number>();
  const raise = (name: string, epsilon: number) => most.set(name, Math.max(most.get(name) ?? 0, epsilon));
  for (const {roundId, epsilon, series} of answers) if (series === undefined && !without.includes(roundId)) raise(roundId, epsilon);
  for (const one of kept.filter(({name}) => !without.includes(name))) {
    const ofPerson = kept.filter((other) => other.name === one.name && personOf(other) === personOf(one));
    raise(`series ${one.name}`, decimalSum(ofPerson.map(({epsilon}) => epsilon)));
  }
  return decimalSum([...most.values()]);
}

/**
 * Returns the answers to go on with: fresh ones with their person, or those that this person has given before.
 *
 * All fresh answers are to one wave of one survey. What is stored is of one deployment.
 */
export function admit(
  fresh: Answer[],
  answers: Answer[],
  kept: KeptReport[],
  lifetimeEpsilon: number | undefined,
  said?: string,
): Answer[] {
  const [first] = fresh;
  const person = whose(first!, first!.clientKey, answers, kept, said);
  const before = answeredBefore(first!, person, answers);
  if (before.length) return before;
  const named = fresh.map((one): Answer => ({...one, person}));
  for (const {roundId, series} of named) if (series) checkSeries(roundId, series, person, answers);
  const rounds = fresh.map((one) => one.roundId);
  checkLimit(spent(answers, kept, rounds), spent([...answers, ...named], kept), lifetimeEpsilon);
  return named;
}
