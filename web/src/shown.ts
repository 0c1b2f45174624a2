// Texts of others that people are shown: croupier/protocol/shown.py and croupier/protocol/wordings.py, character by character.
import {byteLength} from "./bytes.js";
import type {Question, SurveyWording, Wording} from "./gen/croupier/protocol/v1/messages_pb.js";
import {check} from "./refusals.js";

const MOVES = new RegExp(
  "[\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069" +
    "\\u00ad\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u200b\\u2060-\\u2065\\u206a-\\u206f\\u3164\\ufeff\\uffa0\\ufff0-\\ufffb" +
    "\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e00ff}\\u{e01f0}-\\u{e0fff}\\ud800-\\udfff]",
  "gu",
);
const MARKUP = /<[A-Za-z/!?]|&(#|[A-Za-z][A-Za-z0-9]*;)/;
const LANGUAGE = /^[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$/;
const MOST = {title: 200, question: 1000, helpText: 4000, unit: 100, low: 200, high: 200} as const;

export function checkShown(what: string, text: string): void {
  check(text.search(MOVES) < 0, `${what} has characters that could hide or move what is shown beside it`);
}

/** Returns a text with U+FFFD in the place of each character that could hide or move what is shown beside it. */
export const asShown = (text: string): string => text.replace(MOVES, "\ufffd");

function checkText(what: string, text: string, most: number): void {
  check(byteLength(text) <= most, `${what} has more than ${most} bytes`);
  checkShown(what, text);
  check(!text.startsWith(" ") && !text.endsWith(" "), `${what} begins or ends with a space`);
  check(!MARKUP.test(text), `${what} has markup`);
}

const textsOf = (one: Wording): string[] => [
  ...[one.language, one.title, one.question, one.helpText, ...one.choices, one.unit, one.low, one.high],
];

/** Checks the wordings of a question that has this many choices and asks for a number or not. */
export function checkWordings({wordings}: Question, choices: number, isNumber: boolean): void {
  const languages = wordings.map((one) => one.language.toLowerCase());
  check(wordings.length <= 32 && new Set(languages).size === languages.length, "there are too many wordings");
  check(byteLength(wordings.flatMap(textsOf).join("")) <= 65536, "the wordings are too long");
  for (const one of wordings) {
    check(LANGUAGE.test(one.language), "the language of a wording is not a language tag");
    check(one.question !== "", "a wording has no question");
    for (const [name, most] of Object.entries(MOST)) checkText(name, one[name as keyof typeof MOST], most);
    for (const choice of one.choices) checkText("a choice", choice, 400);
    check(!one.choices.includes("") && new Set(one.choices).size === one.choices.length, "two choices read the same");
    check(one.choices.length === 0 || one.choices.length === choices, "a wording has another number of choices");
    check(isNumber || (!one.unit && !one.low && !one.high), "a wording has a unit, and no number is asked for");
  }
}

/** Checks how a survey is put to people. */
export function checkSurveyWordings(wordings: SurveyWording[]): void {
  const languages = wordings.map((one) => one.language.toLowerCase());
  const fits = wordings.length <= 32 && new Set(languages).size === languages.length;
  check(fits, "the survey has too many wordings, or two in one language");
  const all = wordings.flatMap((one) => [one.language, one.title, one.introduction, one.consent]);
  check(byteLength(all.join("")) <= 65536, "the wordings of the survey are too long");
  for (const {language, title, introduction, consent} of wordings) {
    check(LANGUAGE.test(language), "the language of a wording is not a language tag");
    check(title !== "" && consent !== "", "a wording of the survey has no title or no consent");
    checkText("title", title, 200);
    checkText("introduction", introduction, 4000);
    checkText("consent", consent, 4000);
  }
}
