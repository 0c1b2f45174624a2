// What a person is promised, who sees what, and who has to be trusted for what.
import {hex} from "./bytes.js";
import {chain, type Deployment} from "./deployment.js";
import {deadlineOf} from "./manifest.js";
import {rightAtMost} from "./randomize.js";
import {hidesLeftOut, type ShownSurvey} from "./shown_survey.js";
import {isOneQuestion, type Survey} from "./survey.js";
import type {Texts} from "./texts.js";
import {fingerprint, h, list} from "./view.js";

/** Returns how often someone is right at most about all answers if one server that shuffles is honest, whatever everybody
 * else does: of each question the hop noise counts, or the person's own noise where that hides more. Undefined without hop
 * noise. */
function oneHonestAtMost({message: {hopNoise}, questions}: Survey, place: number): number | undefined {
  if (!hopNoise) return undefined;
  let [epsilon, delta] = [0, 0];
  for (const {budgets} of questions) {
    const hides = hopNoise.epsilon < budgets[place]!;
    epsilon += hides ? hopNoise.epsilon : budgets[place]!;
    delta += hides ? hopNoise.delta : 0;
  }
  return rightAtMost(epsilon, delta);
}

/** Returns how often someone is right at most about all answers if the rounds are released as promised: by the limits of
 * their certificates, (e^epsilon + delta)/(e^epsilon + 1). */
export function releasedAtMost(survey: Survey, place: number): number {
  const {message, questions, totals} = survey;
  const limits = questions.map(({grid}) => Math.min(grid[place]!.epsilon, grid[place]!.epsilonMax ?? message.epsilonMax));
  const epsilon = limits.reduce((sum, one) => sum + one, 0);
  const honest = oneHonestAtMost(survey, place) ?? 1;
  return Math.min(rightAtMost(totals[place]!), rightAtMost(epsilon, questions.length * message.delta), honest);
}

/** Returns what a person is promised whatever most servers do: of an honest server, if there is hop noise, and of the
 * person's own noise. */
export function promises(survey: Survey, place: number, texts: Texts): HTMLElement[] {
  const alone = texts.atMost(rightAtMost(survey.totals[place]!));
  const honest = oneHonestAtMost(survey, place);
  const isAlone = isOneQuestion(survey);
  const said = honest === undefined
    ? [texts.say(isAlone ? "promise 2" : "promise survey", {alone})]
    : [
        texts.say(isAlone ? "promise one honest" : "promise one honest survey", {
          hops: texts.number(survey.message.numHops),
          honest: texts.atMost(honest),
        }),
        texts.say("promise none honest", {alone}),
      ];
  return said.map((text) => h("p", {}, text));
}

function conditions({survey, rounds}: ShownSurvey, texts: Texts): string[] {
  const {message, questions} = survey;
  const limits = questions.flatMap(({grid}) => grid.map((one) => one.epsilonMax ?? message.epsilonMax));
  const deadline = deadlineOf(rounds[0]!.terms);
  const ofSurvey = [
    texts.say(hidesLeftOut(survey) ? "left out hidden" : "left out counted"),
    texts.say("survey together", {count: texts.number(questions.length)}),
  ];
  return [
    texts.say("at least", {least: texts.number(message.minBatchSize)}),
    texts.say("at most epsilon", {limit: texts.epsilon(Math.max(...limits)), delta: texts.tiny(message.delta)}),
    deadline ? texts.say("closes", {when: texts.when(deadline)}) : texts.say("closes by operator"),
    ...(isOneQuestion(survey) ? [] : ofSurvey),
  ];
}

function sights({message, questions}: Survey, deployment: Deployment, texts: Texts): string[] {
  const exact = questions[0]!.grid.length > 1 && !message.budgetPrivacy;
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

/** Returns everything behind the sentences of the promise. */
export function trustDetails(shown: ShownSurvey, deployment: Deployment, texts: Texts, host: string): HTMLDetailsElement {
  const {survey} = shown;
  const {dishonest, surveyId} = survey.message;
  const last = survey.totals.length - 1;
  const honest = oneHonestAtMost(survey, last);
  const signers = texts.list(chain(deployment).map((one) => one.name));
  const trusted = [
    texts.say("trust own noise", {alone: texts.atMost(rightAtMost(survey.totals[last]!))}),
    ...(honest === undefined ? [] : [texts.say("trust hop noise", {honest: texts.atMost(honest)})]),
    dishonest ? texts.say("trust shuffle", {dishonest: texts.number(dishonest)}) : texts.say("trust shuffle nobody"),
    host ? texts.say("trust page", {host}) : texts.say("trust file"),
    texts.say("trust invitation"),
    ...(isOneQuestion(survey) ? [] : [texts.say("trust count")]),
    texts.say("trust words"),
    texts.say("trust signed", {signers}),
  ];
  return h(
    "details",
    {class: "trust"},
    h("summary", {}, texts.say("more")),
    h("h2", {}, texts.say("when read")),
    list(conditions(shown, texts)),
    h("h2", {}, texts.say("who sees")),
    list(sights(survey, deployment, texts)),
    h("h2", {}, texts.say("trust")),
    list(trusted),
    host ? h("p", {}, h("a", {href: "participate.html", download: "participate.html"}, texts.say("page file"))) : undefined,
    h("h2", {}, texts.say("fingerprint")),
    h("p", {}, fingerprint(deployment.fingerprint)),
    h("h2", {}, texts.say("terms hash")),
    h("p", {}, fingerprint(hex(survey.hash))),
    h("p", {class: "quiet"}, surveyId),
  );
}
