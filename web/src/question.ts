// The question of a survey: which mechanism, and what a person can answer.
import {byteLength} from "./bytes.js";
import type {Question} from "./gen/croupier/protocol/v1/messages_pb.js";
import {type Space, spaceFor} from "./projective.js";
import {check, NeedsProgram} from "./refusals.js";
import {checkShown, checkWordings} from "./shown.js";

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

/** Returns what a question asks for; NeedsProgram where only the program can answer it. */
export function readQuestion(question: Question | undefined): Answerable {
  check(question !== undefined, "a question is missing");
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
