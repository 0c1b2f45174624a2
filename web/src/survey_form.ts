// A survey as one form: what is promised, the consent, one choice of protection, all questions, and what will be sent.
import type {Deployment} from "./deployment.js";
import {type Asked, answerField, answerOf, captions, fits, givenIn, previewOf, problemOf} from "./form.js";
import {drawAnswer, rightAtMost} from "./randomize.js";
import type {ShownSurvey} from "./shown_survey.js";
import {allWavesAtMost, wavesOfVersion, type Wave} from "./study.js";
import {bestWording, type Texts} from "./texts.js";
import {promises, surveyReleasedAtMost, trustDetails} from "./trust.js";
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
  const wording = bestWording(shown.survey.wordings, languages)!;
  const parts = shown.rounds.map(({terms}, at): Part => {
    const asked = bestWording(terms.question.wordings, languages);
    const preview = h("div", {class: "preview", "aria-live": "polite"});
    return {terms, wording: asked, texts, names: captions(terms, asked, texts), field: `answer-${at}`, left: `left-${at}`, preview};
  });
  const promise = h("div", {});
  const problem = h("p", {class: "problem", role: "alert", hidden: true});
  const form: HTMLFormElement = h(
    "form",
    {autocomplete: "off", novalidate: true, onsubmit: submit, oninput: update},
    consentCard(wording, texts, asking),
    protection(asking),
    ...parts.map((part, at) => questionCard(part, at, parts.length, shown.hidesLeftOut)),
    problem,
    h(
      "div",
      {class: "actions"},
      h("button", {class: "primary"}, texts.say("send all")),
      h("button", {type: "button", class: "plain", onclick: asking.decline}, texts.say("decline")),
      asking.leave && h("button", {type: "button", class: "plain", onclick: asking.leave}, texts.say("leave study")),
    ),
  );

  const isLeftOut = ({left}: Part): boolean => new FormData(form).has(left);
  const place = (): number => givenIn(form, "protection");

  function update(): void {
    const at = place();
    const promised = Number.isNaN(at) ? shown.totals.length - 1 : at;
    const alone = texts.atMost(rightAtMost(shown.totals[promised]!));
    const ofWave = promises(parts.map((one) => one.terms), promised, alone, texts, true);
    promise.replaceChildren(...ofWave, ...(shown.wave ? ofAllWaves(shown, shown.wave, promised, texts) : []));
    for (const part of parts) {
      const left = isLeftOut(part);
      for (const input of form.querySelectorAll<HTMLInputElement>(`[name="${part.field}"]`)) input.disabled = left;
      const value = answerOf(form, part.terms, part.field);
      const said = left ? (shown.hidesLeftOut ? "left out random" : "left out missing") : "choose first";
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
    if (asking.consented === undefined && !new FormData(form).has("consent")) return fail(texts.say("consent missing"), "consent");
    const at = place();
    if (Number.isNaN(at)) return fail(texts.say("protection missing"), "protection");
    const given: GivenAnswers = [];
    for (const part of parts) {
      const epsilon = part.terms.budgets[at]!;
      const value = answerOf(form, part.terms, part.field);
      if (isLeftOut(part)) given.push({value: shown.hidesLeftOut ? drawAnswer(part.terms.asked) : undefined, epsilon, isDrawn: true});
      else if (fits(part.terms, value)) given.push({value, epsilon, isDrawn: false});
      else return fail(`${part.wording?.question ?? part.terms.question.name} ${problemOf(form, part.terms, part.field, texts)}`, part.field);
    }
    if (parts.every(isLeftOut)) return fail(texts.say("all left out"), parts[0]!.left);
    asking.send(given);
  }

  update();
  const largest = texts.atMost(rightAtMost(shown.totals.at(-1)!));
  return h(
    "div",
    {},
    h(
      "div",
      {class: "asked"},
      foreign("h1", wording.language, wording.title, {tabindex: -1}),
      wording.introduction ? foreign("p", wording.language, wording.introduction, {class: "help"}) : undefined,
    ),
    h(
      "section",
      {class: "card promise"},
      h("p", {}, texts.say("promise 1 survey")),
      promise,
      trustDetails(shown.rounds[0]!.terms, asking.deployment, texts, largest, asking.host, shown),
    ),
    form,
  );
}

/** Returns what all waves of a study together may reveal: if one server is honest, and if none is. */
function ofAllWaves(shown: ShownSurvey, wave: Wave, place: number, texts: Texts): HTMLElement[] {
  const {alone, honest} = allWavesAtMost(shown, wave, place);
  const [last, count, number] = [wave.study.lastWave, wavesOfVersion(wave), wave.wave.number].map((one) => texts.number(one));
  const said = [
    texts.say("study waves", {number: number!, count: last!}),
    ...(honest === undefined ? [] : [texts.say("study one honest", {count: count!, honest: texts.atMost(honest)})]),
    texts.say("study none honest", {count: count!, alone: texts.atMost(alone)}),
    ...(wave.study.permanent ? [texts.say("study permanent")] : []),
  ];
  return said.map((text) => h("p", {}, text));
}

function consentCard(wording: {language: string; consent: string}, texts: Texts, {consented, shown}: AskingSurvey): HTMLElement {
  if (consented !== undefined) {
    return h("section", {class: "card"}, h("h2", {}, texts.say("consent")), h("p", {}, texts.say("consented", {when: texts.when(consented)})));
  }
  const change = shown.wave?.study.change;
  return h(
    "section",
    {class: "card"},
    h("h2", {}, texts.say("consent")),
    change ? h("p", {}, texts.say("study changed", {change})) : undefined,
    foreign("p", wording.language, wording.consent),
    h(
      "label",
      {class: "choice"},
      h("input", {type: "checkbox", name: "consent", required: true}),
      h("span", {class: "choice-text"}, texts.say("agree")),
    ),
  );
}

function protection({shown, texts, leaves}: AskingSurvey): HTMLElement {
  const last = shown.totals.length - 1;
  const fits = shown.totals.findIndex((total) => total <= leaves);
  const cards = shown.totals.map((total, at) => {
    const [alone, released] = [rightAtMost(total), surveyReleasedAtMost(shown, at)].map((one) => texts.atMost(one));
    const name = alone === released ? "right at most" : "right at most released";
    const over = total > leaves;
    const end = last > 0 && at === 0 ? texts.say("strongest") : last > 0 && at === last ? texts.say("weakest") : "";
    return choice(
      "protection",
      String(at),
      {checked: at === 0 && fits === 0, disabled: over},
      h("strong", {}, texts.say("total epsilon", {epsilon: texts.number(total, 15)})),
      end ? h("span", {class: "tag"}, end) : undefined,
      h("span", {class: "quiet"}, over ? texts.say("over your limit") : texts.say(name, {alone: alone!, released: released!})),
    );
  });
  return h(
    "fieldset",
    {},
    h("legend", {}, texts.say("protection survey")),
    h("p", {class: "quiet"}, texts.say("protection survey help")),
    h("div", {class: "choices budgets"}, ...cards),
  );
}

function questionCard(part: Part, at: number, count: number, hidesLeftOut: boolean): HTMLElement {
  const {texts, wording, terms} = part;
  const language = wording?.language;
  const help = h("span", {class: "quiet"}, texts.say(hidesLeftOut ? "leave out random" : "leave out missing"));
  const leave = h(
    "label",
    {class: "choice leave"},
    h("input", {type: "checkbox", name: part.left}),
    h("span", {class: "choice-text"}, texts.say("leave out"), help),
  );
  return h(
    "section",
    {class: "card question"},
    h("p", {class: "eyebrow"}, texts.say("question of", {number: texts.number(at + 1), count: texts.number(count)})),
    wording?.title ? foreign("p", language, wording.title, {class: "title"}) : undefined,
    foreign("h2", language, wording?.question ?? terms.question.name),
    wording?.helpText ? foreign("p", language, wording.helpText, {class: "help"}) : undefined,
    answerField(part, part.names, part.field, leave),
    h("details", {class: "sent"}, h("summary", {}, texts.say("what is sent")), part.preview),
  );
}
