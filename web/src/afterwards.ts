// After an answer: the receipt, the answers that were given from here, and the result with the answer's inclusion.
import {hex} from "./bytes.js";
import type {Gateway} from "./calls.js";
import {termsOf} from "./answering.js";
import {decimalSum, spent} from "./counting.js";
import type {Deployment} from "./deployment.js";
import {captions} from "./form.js";
import {type Certificate, Precision, type Publication, type Statement} from "./gen/croupier/protocol/v1/messages_pb.js";
import type {Terms} from "./manifest.js";
import type {Answer, KeptReport, Outbox, Settings} from "./outbox.js";
import {isNumber} from "./question.js";
import {PromiseChanged, Refused} from "./refusals.js";
import {fetchResult, missingAt, placed} from "./results.js";
import {asShown} from "./shown.js";
import {isOneQuestion} from "./survey.js";
import {bestWording, decimalOf, type Texts} from "./texts.js";
import {bar, fingerprint, foreign, h, list} from "./view.js";

export interface Here {
  gateway: Gateway;
  outbox: Outbox;
  deployment: Deployment;
  texts: Texts;
  languages: string[];
}

/** Returns what a person keeps of an answer: enough to have it looked for, and nothing of what was answered. */
function receiptOf(answer: Answer, terms: Terms): object {
  const {roundId, deployment, clientKey, epsilon, at, inclusion = []} = answer;
  return {
    deployment,
    round_id: roundId,
    manifest_hash: hex(terms.hash),
    client_key: clientKey,
    local_epsilon: epsilon,
    answered_at: new Date(at).toISOString(),
    passed_on_by_hop: inclusion.map(([report, budget]) => ({report: hex(report), budget: hex(budget)})),
  };
}

function save(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], {type: "application/json"}));
  h("a", {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Returns the receipt for all answers to a survey. */
export function receipt(here: Here, answers: Answer[], before: boolean): HTMLElement {
  const {texts, deployment, languages} = here;
  const all = answers.map((answer) => ({answer, terms: termsOf(answer, deployment)}));
  const {survey} = all[0]!.terms;
  const alone = isOneQuestion(survey);
  const wording = bestWording(survey.message.wordings, languages);
  const left = survey.questions.length - answers.length;
  const receipts = all.map(({answer, terms}) => receiptOf(answer, terms));
  const written = () => JSON.stringify(alone ? receipts[0] : receipts, null, 1);
  const [title, text] = before
    ? ([alone ? "answered before" : "answered survey before", alone ? "answered before text" : "answered survey before text"] as const)
    : ([alone ? "accepted" : "accepted all", alone ? "accepted text" : "accepted all text"] as const);
  return h(
    "section",
    {class: "card receipt"},
    h("p", {class: "tick", "aria-hidden": "true"}, "✓"),
    h("h1", {tabindex: -1}, texts.say(title)),
    foreign("p", wording?.language, alone ? answers[0]!.title : wording?.title ?? survey.message.surveyId, {class: "title"}),
    h("p", {}, texts.say(text)),
    h("p", {class: "quiet"}, texts.say("receipt later")),
    alone ? undefined : h("ul", {class: "steps"}, ...answers.map((one) => h("li", {class: "done", dir: "auto"}, one.title))),
    left ? h("p", {class: "quiet"}, texts.say("left out count", {count: texts.number(left)})) : undefined,
    h(
      "details",
      {},
      h("summary", {}, texts.say("details")),
      h(
        "dl",
        {},
        ...pair("ε", texts.number(decimalSum(answers.map((one) => one.epsilon)), 15)),
        ...pair(texts.say("terms hash"), fingerprint(hex(survey.hash))),
        ...pair(texts.say("your key"), fingerprint(answers[0]!.clientKey)),
      ),
    ),
    h(
      "div",
      {class: "actions"},
      h("button", {class: "plain", onclick: () => save(`receipt-${survey.message.surveyId}.json`, written())}, texts.say(alone ? "save receipt" : "save receipts")),
    ),
    outcome(here, answers),
  );
}

const pair = (name: string, value: Node | string): HTMLElement[] => [h("dt", {}, name), h("dd", {}, value)];

/** Returns a button that looks for the result, and the place where it is shown. */
function outcome(here: Here, answers: Answer[]): HTMLElement {
  const {texts} = here;
  const several = answers.length > 1;
  const shown = h("div", {role: "status"});
  const button = h("button", {class: "plain", onclick: look}, texts.say(several ? "look all" : "look"));
  async function look(): Promise<void> {
    button.disabled = true;
    shown.replaceChildren(h("p", {}, texts.say("looking")));
    try {
      const results: HTMLElement[] = [];
      const certified: Certificate[] = [];
      for (const answer of answers) {
        const title = several ? answer.title : texts.say("result");
        const {elements, certificate} = await found(here, answer);
        results.push(h("h2", {dir: "auto"}, title), ...elements);
        if (certificate.granted) certified.push(certificate);
      }
      if (certified.length > 1) results.push(h("p", {}, together(certified, texts)));
      shown.replaceChildren(...results);
      button.remove();
    } catch (error) {
      const early = error instanceof Refused && ["NOT_READY", "UNKNOWN_ROUND"].includes(error.code);
      shown.replaceChildren(h("p", {}, early ? texts.say("not yet") : sentence(texts, error)));
      button.disabled = false;
    }
  }
  return h("div", {class: "outcome"}, shown, button);
}

/** Returns what several results together reveal: by basic composition, the sums. */
function together(certified: Certificate[], texts: Texts): string {
  const epsilon = decimalSum(certified.map((one) => one.epsilon));
  const delta = decimalSum(certified.map((one) => one.delta));
  return texts.say("together", {epsilon: texts.epsilon(epsilon), delta: texts.tiny(delta)});
}

async function found(
  {gateway, deployment, texts, languages}: Here,
  answer: Answer,
): Promise<{elements: HTMLElement[]; certificate: Certificate}> {
  const terms = termsOf(answer, deployment);
  const {publication, certificate} = await fetchResult(gateway, terms, deployment);
  const elements: HTMLElement[] = [];
  if (!certificate.granted) {
    elements.push(h("p", {}, texts.say("refused result")), list(certificate.refusals.map((one) => stated(one, texts))));
  } else {
    elements.push(estimates(publication, terms, texts, languages));
    if (publication.precision === Precision.USABLE) elements.push(halving(certificate, terms, texts));
    elements.push(certificateText(certificate, texts));
  }
  if (!answer.inclusion) return {elements: [...elements, h("p", {}, texts.say("no hashes"))], certificate};
  const missing = await missingAt(gateway, certificate, terms, deployment, answer.inclusion);
  const lost = h("p", {class: "problem"}, texts.say("not included", {hops: texts.list(missing)}));
  elements.push(missing.length ? lost : h("p", {class: "good"}, `✓ ${texts.say("included")}`));
  return {elements, certificate};
}

/** Returns how many people would halve the error: 4 times as many, and 2 times where all of the noise is that of hops. */
function halving({numUsers}: Certificate, {survey}: Terms, texts: Texts): HTMLElement {
  const [few, many] = [2n, 4n].map((times) => texts.number(Number(numUsers * times)));
  return h("p", {class: "quiet halving"}, survey.message.hopNoise ? texts.say("halve between", {few: few!, many: many!}) : texts.say("halve", {many: many!}));
}

function estimates(publication: Publication, terms: Terms, texts: Texts, languages: string[]): HTMLElement {
  const {sealedResult, confidenceLevel, shares} = publication;
  const values = !shares
    ? publication.values
    : shares.estimate.map((estimate, at) => ({
        estimate,
        projected: shares.projected[at],
        confidenceInterval: {low: shares.low[at]!, high: shares.high[at]!},
      }));
  if (sealedResult.length || !values.length) return h("p", {}, texts.say("sealed result"));
  const wording = bestWording(terms.question.wordings, languages);
  const names = captions(terms, wording, texts);
  const {asked} = terms;
  const number = isNumber(asked);
  const [low, high] = number ? [asked.low, asked.high] : [0, 1];
  const unit = number && wording?.unit ? ` ${wording.unit}` : "";
  const written = (value: number) => (number ? `${texts.number(value, 4)}${unit}` : texts.percent(value));
  const level = texts.percent(confidenceLevel);
  const isNoisy = [Precision.COVERS_RANGE, Precision.HIDES_SHARES].includes(publication.precision);
  const share = (value: number) => (placed(value, low, high).shown - low) / (high - low);
  const rows = values.map(({estimate, confidenceInterval: interval}, at) => {
    const label = number ? texts.say("mean") : texts.say("share of", {label: names[asked.kind === "rr" ? 1 : at] ?? ""});
    const {shown, isOutside} = placed(estimate, low, high);
    const range = interval && {low: written(interval.low), high: written(interval.high)};
    const looksOutside = isOutside && ![written(shown), `-${written(shown)}`].includes(written(estimate));
    const outside = looksOutside && texts.say("outside", {estimate: written(estimate), end: written(shown)});
    // Where the noise is too large the interval is the result: a single number would be taken for one.
    const told = isNoisy && range ? h("span", {class: "quiet range"}, texts.say("from to", range)) : h("span", {class: "chance"}, written(shown));
    return h(
      "li",
      {},
      h("span", {class: "what", dir: "auto"}, label),
      told,
      isNoisy && interval ? bar(share(interval.high), share(interval.low)) : bar(share(estimate)),
      !isNoisy && range && h("span", {class: "quiet"}, texts.say("interval", {level, ...range})),
      !isNoisy && outside && h("span", {class: "quiet outside"}, outside),
    );
  });
  const axis = {low: written(low), high: written(high), level};
  return h(
    "div",
    {},
    isNoisy ? h("p", {class: "notice"}, texts.say("too noisy", {level})) : undefined,
    h("ul", {class: "chances"}, ...rows),
    h("p", {class: "quiet"}, texts.say(isNoisy ? "axis of intervals" : "axis", axis)),
    hopInfluence(publication, number, unit, texts),
  );
}

/** Returns what one dishonest server can have done to a result with its made-up answers; undefined without hop noise. */
function hopInfluence({hopInfluence: most}: Publication, number: boolean, unit: string, texts: Texts): HTMLElement | undefined {
  if (!most) return undefined;
  const moved = number ? `${texts.epsilon(most)}${unit}` : texts.say("points", {points: texts.epsilon(100 * most)});
  return h("p", {class: "quiet"}, texts.say("hop influence", {moved}));
}

/** Returns what a certificate states with a code, in the words of the page; a code that it does not know, as it is. */
function stated(statement: Statement, texts: Texts): string {
  const values = statement.parameters.map(({name, value}): [string, string] => {
    if (value.case === "text") return [name, asShown(value.value)];
    const number = Number(value.value ?? 0);
    return [name, number > 0 && number < 1e-3 ? texts.tiny(number) : texts.number(number)];
  });
  if (texts.has(statement.code)) return texts.say(statement.code, Object.fromEntries(values));
  const shown = values.map(([name, value]) => `${asShown(name)}: ${value}`);
  return texts.say("statement", {code: asShown(statement.code), values: texts.list(shown)});
}

function certificateText(certificate: Certificate, texts: Texts): HTMLElement {
  const values = {
    count: texts.number(Number(certificate.numUsers)),
    epsilon: texts.epsilon(certificate.epsilon),
    grade: asShown(certificate.grade),
    delta: texts.tiny(certificate.delta),
  };
  return h(
    "div",
    {},
    h("p", {}, texts.say("certificate", values)),
    h("details", {}, h("summary", {}, texts.say("assumptions")), list(certificate.assumptions.map((one) => stated(one, texts)))),
  );
}

/** Returns the sentence for an error; what a service has said is not shown, only its code. */
export function sentence(texts: Texts, error: unknown): string {
  if (error instanceof Refused) return texts.has(error.code) ? texts.say(error.code) : texts.say("OTHER", {code: error.code});
  return texts.say(error instanceof PromiseChanged ? "PROMISE_CHANGED" : "DISTRUST");
}

/** Returns the answers that were given from here, what they have spent, and the person's own limit. */
export function history(here: Here, answers: Answer[], kept: KeptReport[], settings: Settings, without: string[]): HTMLElement {
  const {texts, outbox, deployment} = here;
  const said = h("p", {role: "status", class: "quiet"});
  const input = h("input", {id: "limit", inputmode: "decimal", autocomplete: "off", value: settings.lifetimeEpsilon && texts.plain(settings.lifetimeEpsilon)});
  async function keep(event: Event): Promise<void> {
    event.preventDefault();
    const limit = input.value.trim() ? decimalOf(input.value) : undefined;
    if (limit !== undefined && !(limit > 0)) {
      said.textContent = texts.say("limit wrong");
      return;
    }
    await outbox.set(deployment.name, {lifetimeEpsilon: limit});
    said.textContent = limit === undefined ? texts.say("limit removed") : texts.say("limit saved", {limit: texts.plain(limit)});
    input.dispatchEvent(new CustomEvent("limit", {bubbles: true}));
  }
  const items = answers
    .filter((one) => !without.includes(one.id))
    .map((one) =>
      h(
        "li",
        {},
        h("span", {class: "what", dir: "auto"}, one.title),
        h("span", {class: "quiet"}, `${texts.when(one.at)} · ε = ${texts.number(one.epsilon, 15)} · ${texts.say(`state ${one.state}`)}`),
        one.state === "accepted" ? outcome(here, [one]) : undefined,
      ),
    );
  return h(
    "section",
    {class: "history"},
    items.length ? h("h2", {}, texts.say("my answers")) : undefined,
    items.length ? h("ul", {class: "answers"}, ...items) : undefined,
    answers.length ? h("p", {class: "quiet"}, texts.say("spent", {spent: texts.number(spent(answers, kept), 15)})) : undefined,
    h(
      "details",
      {},
      h("summary", {}, texts.say("limit")),
      h(
        "form",
        {class: "limit", novalidate: true, onsubmit: keep},
        h("label", {for: "limit"}, texts.say("limit help")),
        h("div", {class: "row"}, input, h("button", {class: "plain"}, texts.say("save"))),
        said,
      ),
    ),
  );
}
