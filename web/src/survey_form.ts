// A survey as one form: what is promised, the consent, one choice of protection, all questions, and what will be sent. One
// question without any text of the survey is shown as the question alone.
import type {Deployment} from "./deployment.js";
import {type Asked, answerField, answerOf, captions, fits, givenIn, previewOf, problemOf} from "./form.js";
import {drawAnswer, rightAtMost} from "./randomize.js";
import {wavesOfVersion} from "./schedule.js";
import {allWavesAtMost, hidesLeftOut, type ShownSurvey} from "./shown_survey.js";
import {isOneQuestion} from "./survey.js";
import {bestWording, type Texts} from "./texts.js";
import {promises, releasedAtMost, trustDetails} from "./trust.js";
import {choice, foreign, h} from "./view.js";

/** The answer to the round in the same place of the survey; undefined where nothing is sent. `isDrawn`: at random, because
 * the person leaves the question out. */
export type GivenAnswers = {value: number | undefined; epsilon: number; isDrawn: boolean}[];

interface AskingSurvey {
  shown: ShownSurvey;
  deployment: Deployment;
  languages: string[];
  texts: Texts;
  host: string;
  /** The largest budget that the person's own limit leaves. */
  leaves: number;
  send: (given: GivenAnswers) => void;
  decline: () => void;
  /** Of a study that the person has consented to in this version: when, in milliseconds. */
  consented?: number;
  /** Of a study that the person has consented to: leaves it. */
  leave?: () => void;
}

interface Part extends Asked {
  names: string[];
  field: string;
  left: string;
  preview: HTMLElement;
}

export function surveyForm(asking: AskingSurvey): HTMLElement {
  const {shown, texts, languages} = asking;
  const {survey} = shown;
  const alone = isOneQuestion(survey);
  const hides = hidesLeftOut(survey);
  const parts = survey.questions.map((terms): Part => {
    const wording = bestWording(terms.question.wordings, languages);
    const preview = h("div", {class: "preview", "aria-live": "polite"});
    const [field, left] = [`answer-${terms.place}`, `left-${terms.place}`];
    return {terms, wording, texts, names: captions(terms, wording, texts), field, left, preview};
  });
  const [first] = parts;
  const promise = h("div", {});
  const problem = h("p", {class: "problem", role: "alert", hidden: true});
  const sent = () => h("section", {class: "card"}, h("h2", {}, texts.say("what is sent")), first!.preview);
  const form: HTMLFormElement = h(
    "form",
    {autocomplete: "off", novalidate: true, onsubmit: submit, oninput: update},
    ...(alone
      ? [answerField(first!, first!.names, first!.field), protection(asking), sent()]
      : [consentCard(asking), protection(asking), ...parts.map((part) => questionCard(part, parts.length, hides))]),
    problem,
    h(
      "div",
      {class: "actions"},
      h("button", {class: "primary"}, texts.say(alone ? "send" : "send all")),
      h("button", {type: "button", class: "plain", onclick: asking.decline}, texts.say("decline")),
      asking.leave && h("button", {type: "button", class: "plain", onclick: asking.leave}, texts.say("leave study")),
    ),
  );

  const isLeftOut = ({left}: Part): boolean => new FormData(form).has(left);
  const place = (): number => givenIn(form, "protection");

  function update(): void {
    const at = place();
    const promised = Number.isNaN(at) ? survey.totals.length - 1 : at;
    promise.replaceChildren(...promises(survey, promised, texts), ...ofAllWaves(shown, promised, texts));
    for (const part of parts) {
      const left = isLeftOut(part);
      for (const input of form.querySelectorAll<HTMLInputElement>(`[name="${part.field}"]`)) input.disabled = left;
      const value = answerOf(form, part.terms, part.field);
      const said = left ? (hides ? "left out random" : "left out missing") : "choose first";
      const shows = !left && !Number.isNaN(at) && fits(part.terms, value);
      const quiet = h("p", {class: "quiet"}, texts.say(said));
      part.preview.replaceChildren(...(shows ? previewOf(part, part.names, value, part.terms.budgets[at]!) : [quiet]));
    }
  }

  function fail(text: string, field: string): void {
    problem.textContent = text;
    problem.hidden = false;
    form.querySelector<HTMLElement>(`[name="${field}"]`)?.focus();
  }

  function submit(event: Event): void {
    event.preventDefault();
    problem.hidden = true;
    const consents = alone || asking.consented !== undefined || new FormData(form).has("consent");
    if (!consents) return fail(texts.say("consent missing"), "consent");
    const at = place();
    if (Number.isNaN(at)) return fail(texts.say("protection missing"), "protection");
    const given: GivenAnswers = [];
    for (const part of parts) {
      const epsilon = part.terms.budgets[at]!;
      const value = answerOf(form, part.terms, part.field);
      const about = alone ? "" : `${part.wording?.question ?? part.terms.question.name} `;
      if (isLeftOut(part)) given.push({value: hides ? drawAnswer(part.terms.asked) : undefined, epsilon, isDrawn: true});
      else if (fits(part.terms, value)) given.push({value, epsilon, isDrawn: false});
      else return fail(`${about}${problemOf(form, part.terms, part.field, texts)}`, part.field);
    }
    if (parts.every(isLeftOut)) return fail(texts.say("all left out"), first!.left);
    asking.send(given);
  }

  update();
  return h(
    "div",
    {},
    heading(asking, first!),
    h(
      "section",
      {class: "card promise"},
      h("p", {}, texts.say(alone ? "promise 1" : "promise 1 survey")),
      promise,
      trustDetails(shown, asking.deployment, texts, asking.host),
    ),
    form,
  );
}

function heading({shown: {survey}, languages}: AskingSurvey, {terms, wording}: Part): HTMLElement {
  const whole = bestWording(survey.message.wordings, languages);
  const [language, eyebrow, title, help] = isOneQuestion(survey)
    ? [wording?.language, wording?.title, wording?.question ?? terms.question.name, wording?.helpText]
    : [whole?.language, "", whole?.title ?? survey.message.surveyId, whole?.introduction];
  return h(
    "div",
    {class: "asked"},
    eyebrow ? foreign("p", language, eyebrow, {class: "eyebrow"}) : undefined,
    foreign("h1", language, title, {tabindex: -1}),
    help ? foreign("p", language, help, {class: "help"}) : undefined,
  );
}

/** Returns what all waves of a study together may reveal: if one server is honest, and if none is. */
function ofAllWaves({survey, wave}: ShownSurvey, place: number, texts: Texts): HTMLElement[] {
  const {schedule} = survey.message;
  if (!schedule) return [];
  const {alone, honest} = allWavesAtMost(survey, place);
  const [last, count, number] = [schedule.lastWave, wavesOfVersion(schedule), wave].map((one) => texts.number(one));
  const said = [
    texts.say("study waves", {number: number!, count: last!}),
    ...(honest === undefined ? [] : [texts.say("study one honest", {count: count!, honest: texts.atMost(honest)})]),
    texts.say("study none honest", {count: count!, alone: texts.atMost(alone)}),
    ...(schedule.permanent ? [texts.say("study permanent")] : []),
  ];
  return said.map((text) => h("p", {}, text));
}

function consentCard({consented, shown: {survey}, texts, languages}: AskingSurvey): HTMLElement {
  const {wordings, schedule} = survey.message;
  const title = h("h2", {}, texts.say("consent"));
  if (consented !== undefined) return h("section", {class: "card"}, title, h("p", {}, texts.say("consented", {when: texts.when(consented)})));
  const wording = bestWording(wordings, languages);
  return h(
    "section",
    {class: "card"},
    title,
    schedule?.change ? h("p", {}, texts.say("study changed", {change: schedule.change})) : undefined,
    wording && foreign("p", wording.language, wording.consent),
    h(
      "label",
      {class: "choice"},
      h("input", {type: "checkbox", name: "consent", required: true}),
      h("span", {class: "choice-text"}, texts.say("agree")),
    ),
  );
}

function protection({shown: {survey}, texts, leaves}: AskingSurvey): HTMLElement {
  const {totals} = survey;
  const isAlone = isOneQuestion(survey);
  const cards = totals.map((total, at) => {
    const [alone, released] = [rightAtMost(total), releasedAtMost(survey, at)].map((one) => texts.atMost(one));
    const name = alone === released ? "right at most" : "right at most released";
    const over = total > leaves;
    const end = totals.length === 1 ? "" : at === 0 ? texts.say("strongest") : at === totals.length - 1 ? texts.say("weakest") : "";
    const epsilon = texts.number(total, 15);
    return choice(
      "protection",
      String(at),
      {checked: at === 0 && !over, disabled: over},
      h("strong", {}, isAlone ? `ε = ${epsilon}` : texts.say("total epsilon", {epsilon})),
      end ? h("span", {class: "tag"}, end) : undefined,
      h("span", {class: "quiet"}, over ? texts.say("over your limit") : texts.say(name, {alone: alone!, released: released!})),
    );
  });
  return h(
    "fieldset",
    {},
    h("legend", {}, texts.say(isAlone ? "protection" : "protection survey")),
    h("p", {class: "quiet"}, texts.say(isAlone ? "protection help" : "protection survey help")),
    h("div", {class: "choices budgets"}, ...cards),
  );
}

function questionCard(part: Part, count: number, hides: boolean): HTMLElement {
  const {texts, wording, terms} = part;
  const language = wording?.language;
  const help = h("span", {class: "quiet"}, texts.say(hides ? "leave out random" : "leave out missing"));
  const leave = h(
    "label",
    {class: "choice leave"},
    h("input", {type: "checkbox", name: part.left}),
    h("span", {class: "choice-text"}, texts.say("leave out"), help),
  );
  return h(
    "section",
    {class: "card question"},
    h("p", {class: "eyebrow"}, texts.say("question of", {number: texts.number(terms.place + 1), count: texts.number(count)})),
    wording?.title ? foreign("p", language, wording.title, {class: "title"}) : undefined,
    foreign("h2", language, wording?.question ?? terms.question.name),
    wording?.helpText ? foreign("p", language, wording.helpText, {class: "help"}) : undefined,
    answerField(part, part.names, part.field, leave),
    h("details", {class: "sent"}, h("summary", {}, texts.say("what is sent")), part.preview),
  );
}
