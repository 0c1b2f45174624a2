// The fields of one question: its answers, and what will really be sent.
import type {Wording} from "./gen/croupier/protocol/v1/messages_pb.js";
import {isNumber} from "./question.js";
import {checkValue, levelsOf, probabilities} from "./randomize.js";
import {asShown} from "./shown.js";
import type {QuestionTerms} from "./survey.js";
import {decimalOf, type Texts} from "./texts.js";
import {bar, choice, foreign, h} from "./view.js";

const MOST_CARDS = 12;
const MOST_BARS = 8;

/** A question as it is asked. */
export interface Asked {
  terms: QuestionTerms;
  wording: Wording | undefined;
  texts: Texts;
}

/** Returns the caption of each answer that can be chosen, or of the two ends of the range. */
export function captions(terms: QuestionTerms, wording: Wording | undefined, texts: Texts): string[] {
  const {asked} = terms;
  if (isNumber(asked)) {
    const unit = wording?.unit ? ` ${wording.unit}` : "";
    const meant = (end: string | undefined) => (end ? ` (${end})` : "");
    const [low, high] = [asked.low, asked.high].map((end) => `${texts.number(end)}${unit}`);
    return [`${low}${meant(wording?.low)}`, `${high}${meant(wording?.high)}`];
  }
  if (wording?.choices.length) return wording.choices;
  return asked.kind === "rr" ? [texts.say("no"), texts.say("yes")] : asked.labels;
}

/** Returns what is chosen in a field, of several ticked boxes the sum; NaN for nothing. */
export function givenIn(form: HTMLFormElement, field: string, read: (written: string) => number = Number): number {
  const written = new FormData(form).getAll(field).map((one) => String(one).trim());
  return written.length && written.every(Boolean) ? written.reduce((sum, one) => sum + read(one), 0) : NaN;
}

/** Returns the answer in the field of a question; NaN for none, and for what is not understood. */
export const answerOf = (form: HTMLFormElement, {asked}: QuestionTerms, field: string): number =>
  givenIn(form, field, isNumber(asked) ? decimalOf : Number);

export function fits(terms: QuestionTerms, value: number): boolean {
  try {
    checkValue(terms.asked, value);
    return true;
  } catch {
    return false;
  }
}

/** Returns what is wrong with the answer in a field that does not fit. */
export function problemOf(form: HTMLFormElement, {asked}: QuestionTerms, field: string, texts: Texts): string {
  if (!isNumber(asked)) return texts.say("answer missing");
  const written = String(new FormData(form).get(field) ?? "").trim();
  return problemOfNumber(written, asked, texts);
}

function problemOfNumber(written: string, {low, high}: {low: number; high: number}, texts: Texts): string {
  const ends = {low: texts.plain(low), high: texts.plain(high)};
  const isUnclear = written !== "" && Number.isNaN(decimalOf(written));
  return isUnclear ? texts.say("answer number", {...ends, written: asShown(written)}) : texts.say("answer range", ends);
}

/** Returns a field for a number: it takes a comma and a point, whatever the browser's language is, and says what it
 * understands. A field of the type "number" would drop the separator that is not of the browser's language. */
function numberField({terms, wording, texts}: Asked, field: string): HTMLElement[] {
  const {asked} = terms;
  if (!isNumber(asked)) return [];
  const {low, high} = asked;
  const said = h("p", {id: `${field}-understood`, class: "quiet understood", role: "status"});
  const input = h("input", {id: field, name: field, type: "text", inputmode: "decimal", "aria-describedby": said.id, oninput: understand});
  function understand(): void {
    const [written, value] = [input.value.trim(), decimalOf(input.value)];
    const unit = wording?.unit ? ` ${wording.unit}` : "";
    const understood = texts.say("understood", {value: `${texts.plain(value)}${unit}`});
    const all = fits(terms, value) ? understood : problemOfNumber(written, {low, high}, texts);
    said.textContent = written ? all : "";
  }
  return [input, said];
}

export function answerField({terms, wording, texts}: Asked, names: string[], field: string, ...more: HTMLElement[]): HTMLElement {
  const legend = h("legend", {}, texts.say("your answer"));
  const {asked} = terms;
  const language = wording?.choices.length ? wording.language : undefined;
  if (isNumber(asked)) {
    const label = texts.say("number", {low: names[0]!, high: names[1]!});
    const shown = numberField({terms, wording, texts}, field);
    return h("fieldset", {}, legend, h("label", {for: field, class: "number-label"}, label), ...shown, ...more);
  }
  if (asked.kind === "choices") {
    const box = (value: number, oninput: () => void, child: HTMLElement) =>
      choice(field, String(value), {type: "checkbox", required: false, oninput}, child);
    const untick = (which: (value: string) => boolean) => () => {
      for (const input of boxes.querySelectorAll<HTMLInputElement>("input")) if (which(input.value)) input.checked = false;
    };
    const options = names.map((name, at) => box(2 ** at, untick((value) => value === "0"), foreign("span", language, name)));
    const none = box(0, untick((value) => value !== "0"), h("span", {}, texts.say("no option")));
    const boxes = h("div", {class: "choices"}, ...options, none);
    return h("fieldset", {}, legend, h("p", {class: "quiet"}, texts.say("all that apply")), boxes, ...more);
  }
  if (names.length > MOST_CARDS) {
    const options = names.map((name, at) => foreign("option", language, name, {value: at}));
    const first = h("option", {value: ""}, texts.say("choose"));
    return h("fieldset", {}, legend, h("select", {name: field, "aria-label": texts.say("your answer")}, first, ...options), ...more);
  }
  // A bit is asked for as people ask: what it means to say yes comes first, unless the wording has captions of its own.
  const order = asked.kind === "rr" && !wording?.choices.length ? [1, 0] : names.map((_, at) => at);
  const cards = order.map((at) => choice(field, String(at), {}, foreign("span", language, names[at]!)));
  return h("fieldset", {}, legend, h("div", {class: "choices"}, ...cards), ...more);
}

export function previewOf({terms, wording, texts}: Asked, choices: string[], value: number, epsilon: number): HTMLElement[] {
  const {asked} = terms;
  const chances = probabilities(asked, value, epsilon);
  if (asked.kind === "choices") {
    const [wrong, right] = chances.map((one) => texts.percent(one));
    const told = texts.say("what is sent choices", {count: texts.number(asked.choices), right: right!, wrong: wrong!});
    return [h("p", {class: "quiet"}, told)];
  }
  const number = isNumber(asked);
  const unit = wording?.unit ? ` ${wording.unit}` : "";
  const names = asked.kind === "levels" ? levelsOf(asked).map((level) => `${texts.number(level, 4)}${unit}`) : choices;
  const all = names.map((_, at) => at);
  const least = Math.min(...chances);
  const likely = number ? all.filter((at) => chances[at]! > least * (1 + 1e-9)) : [value];
  const shown = names.length > MOST_BARS ? likely : all;
  const rows = shown.map((at) =>
    h(
      "li",
      {class: !number && at === value ? "true" : undefined},
      h(
        "span",
        {class: "what"},
        foreign("span", undefined, names[at]!),
        !number && at === value ? h("span", {class: "tag"}, texts.say("truth")) : undefined,
      ),
      h("span", {class: "chance"}, texts.percent(chances[at]!)),
      bar(chances[at]!),
    ),
  );
  const others = names.length - shown.length;
  if (others) {
    const each = chances[all.find((at) => !shown.includes(at))!]!;
    const label = h("span", {class: "what"}, texts.say("each other", {count: texts.number(others)}));
    rows.push(h("li", {}, label, h("span", {class: "chance"}, texts.percent(each)), bar(each)));
  }
  const fitting = asked.kind === "pgr";
  const told = number ? "what is sent number" : fitting ? "what is sent fits" : "what is sent help";
  return [
    h("p", {class: "quiet"}, texts.say(told)),
    h("ul", {class: "chances"}, ...rows),
    ...(number ? [] : [h("p", {}, texts.say(fitting ? "fits chance" : "truth chance", {chance: texts.percent(chances[value]!)}))]),
  ];
}
