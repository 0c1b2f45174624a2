// What a person is promised, who sees what, and who has to be trusted for what.
import {hex} from "./bytes.js";
import {chain, type Deployment} from "./deployment.js";
import type {Terms} from "./manifest.js";
import {rightAtMost} from "./randomize.js";
import type {ShownSurvey} from "./shown_survey.js";
import type {Texts} from "./texts.js";
import {fingerprint, h, list} from "./view.js";

/** Returns how often someone is right at most if the round is released as promised: (e^epsilon + delta)/(e^epsilon + 1). */
export function releasedAtMost(terms: Terms, epsilon: number): number {
  const {manifest} = terms;
  const budget = manifest.budgetGrid.find((one) => one.epsilon === epsilon);
  const limit = budget?.epsilonMax ?? manifest.epsilonMax;
  const honest = oneHonestAtMost([terms], terms.budgets.indexOf(epsilon)) ?? 1;
  return Math.min(rightAtMost(epsilon), rightAtMost(limit, manifest.delta), honest);
}

/** Returns how often someone is right at most about all answers if one server that shuffles is honest, whatever everybody
 * else does: a round with hop noise counts with it, any other round with the person's own noise. Undefined if no round
 * has hop noise. */
export function oneHonestAtMost(rounds: Terms[], place: number): number | undefined {
  if (!rounds.some(({manifest}) => manifest.hopNoise)) return undefined;
  let [epsilon, delta] = [0, 0];
  for (const {manifest, budgets} of rounds) {
    const {hopNoise} = manifest;
    const hides = hopNoise !== undefined && hopNoise.epsilon < budgets[place]!;
    epsilon += hides ? hopNoise.epsilon : budgets[place]!;
    delta += hides ? hopNoise.delta : 0;
  }
  return rightAtMost(epsilon, delta);
}

/** Returns what a person is promised whatever most servers do: of an honest server, if there is hop noise, and of the
 * person's own noise, by which someone is right `alone` of the time. */
export function promises(rounds: Terms[], place: number, alone: string, texts: Texts, ofSurvey = false): HTMLElement[] {
  const honest = oneHonestAtMost(rounds, place);
  const said = honest === undefined
    ? [texts.say(ofSurvey ? "promise survey" : "promise 2", {alone})]
    : [
        texts.say(ofSurvey ? "promise one honest survey" : "promise one honest", {
          hops: texts.number(rounds[0]!.manifest.hops.length),
          honest: texts.atMost(honest),
        }),
        texts.say("promise none honest", {alone}),
      ];
  return said.map((text) => h("p", {}, text));
}

function conditions({manifest}: Terms, texts: Texts): string[] {
  const limits = manifest.budgetGrid.map((one) => one.epsilonMax ?? manifest.epsilonMax);
  const deadline = Number(manifest.closeDeadlineUnixS);
  return [
    texts.say("at least", {least: texts.number(manifest.minBatchSize)}),
    texts.say("at most epsilon", {limit: texts.epsilon(Math.max(...limits)), delta: texts.tiny(manifest.delta)}),
    deadline ? texts.say("closes", {when: texts.when(deadline * 1000)}) : texts.say("closes by operator"),
  ];
}

function surveyConditions({hidesLeftOut, rounds}: ShownSurvey, texts: Texts): string[] {
  return [
    texts.say(hidesLeftOut ? "left out hidden" : "left out counted"),
    texts.say("survey together", {count: texts.number(rounds.length)}),
  ];
}

function sights({manifest}: Terms, deployment: Deployment, texts: Texts): string[] {
  const exact = manifest.budgetGrid.length > 1 && !manifest.budgetPrivacy;
  const [first, ...others] = deployment.services.filter((one) => one.role === "shuffler").map((one) => one.name);
  return [
    texts.say("sees first", {first: first!}),
    ...(others.length ? [texts.say("sees others", {others: texts.list(others)})] : []),
    texts.say("sees accountant"),
    texts.say("sees analyzer"),
    texts.say("sees all"),
    ...(exact ? [texts.say("sees counts")] : []),
  ];
}

/** Returns how often someone is right at most about all answers if the rounds are released as promised. */
export function surveyReleasedAtMost({rounds, totals}: ShownSurvey, place: number): number {
  const limits = rounds.map(({terms}) => {
    const budget = terms.manifest.budgetGrid[place]!;
    return Math.min(budget.epsilon, budget.epsilonMax ?? terms.manifest.epsilonMax);
  });
  const delta = rounds.reduce((sum, {terms}) => sum + terms.manifest.delta, 0);
  const epsilon = limits.reduce((sum, one) => sum + one, 0);
  const honest = oneHonestAtMost(rounds.map((one) => one.terms), place) ?? 1;
  return Math.min(rightAtMost(totals[place]!), rightAtMost(epsilon, delta), honest);
}

/** Returns everything behind the two sentences; of a survey, whose rounds have the same conditions, for all of them. */
export function trustDetails(
  terms: Terms,
  deployment: Deployment,
  texts: Texts,
  alone: string,
  host: string,
  survey?: ShownSurvey,
): HTMLDetailsElement {
  const {dishonest} = terms.manifest;
  const honest = oneHonestAtMost(survey ? survey.rounds.map((one) => one.terms) : [terms], terms.budgets.length - 1);
  const signers = texts.list(chain(deployment).map((one) => one.name));
  const trusted = [
    texts.say("trust own noise", {alone}),
    ...(honest === undefined ? [] : [texts.say("trust hop noise", {honest: texts.atMost(honest)})]),
    dishonest ? texts.say("trust shuffle", {dishonest: texts.number(dishonest)}) : texts.say("trust shuffle nobody"),
    host ? texts.say("trust page", {host}) : texts.say("trust file"),
    texts.say("trust invitation"),
    ...(survey ? [texts.say("trust count")] : []),
    texts.say("trust words"),
    texts.say("trust signed", {signers}),
  ];
  return h(
    "details",
    {class: "trust"},
    h("summary", {}, texts.say("more")),
    h("h2", {}, texts.say("when read")),
    list([...conditions(terms, texts), ...(survey ? surveyConditions(survey, texts) : [])]),
    h("h2", {}, texts.say("who sees")),
    list(sights(terms, deployment, texts)),
    h("h2", {}, texts.say("trust")),
    list(trusted),
    host ? h("p", {}, h("a", {href: "participate.html", download: "participate.html"}, texts.say("page file"))) : undefined,
    h("h2", {}, texts.say("fingerprint")),
    h("p", {}, fingerprint(deployment.fingerprint)),
    h("h2", {}, texts.say("terms hash")),
    h("p", {}, fingerprint(survey ? survey.hash : hex(terms.hash))),
    h("p", {class: "quiet"}, survey ? survey.survey.surveyId : `${texts.say("round")} ${terms.roundId}`),
  );
}
