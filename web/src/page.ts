// The page itself: from the invitation to the receipt. Every screen replaces the one before.
import {ed25519} from "@noble/curves/ed25519.js";

import {history, type Here, receipt, sentence} from "./afterwards.js";
import {checkAdmission, drawReport, fetchRound, goOn, prepareAnswer, type Shown, type Step, termsOf} from "./answering.js";
import {type Bytes, equal, fromBase64Url, fromHex, hex, randomBytes} from "./bytes.js";
import {Gateway} from "./calls.js";
import {answeredBefore, type Asked, LargerBefore, LimitExceeded, OtherPerson, type Person, personOf, SeriesFull, spent, whose} from "./counting.js";
import type {Deployment} from "./deployment.js";
import {type Answer, type Consent, Outbox, type Settings} from "./outbox.js";
import {Distrust, NeedsProgram, Refused} from "./refusals.js";
import type {Terms} from "./manifest.js";
import {nextWave} from "./schedule.js";
import {fetchSurvey, newestWave, type ShownSurvey} from "./shown_survey.js";
import {checkContinues, invitationHash, invitedKey, isOneQuestion, readSurvey, roundIdOf, seriesOf, type Survey} from "./survey.js";
import {type GivenAnswers, surveyForm} from "./survey_form.js";
import {bestWording, LANGUAGES, type Name, pageLanguage, Texts} from "./texts.js";
import {checkAgreed, readNewest, readVersions, type SignedVersion} from "./versions.js";
import {fingerprint as groups, h} from "./view.js";

const STEPS = ["randomize", "tickets", "seal", "send"] as const satisfies Step[];

/** What the link of an invitation says, after the # of the address, which browsers do not send to servers. */
interface Invitation {
  /** From which the key follows. */
  secret?: Bytes;
  /** When it expires, Unix milliseconds; Infinity: never. */
  until: number;
  deployment?: Bytes;
  round: string;
  gateway: string;
  /** A part of it cannot be read: the link was cut off. */
  broken: boolean;
}

function readInvitation(fragment: string): Invitation {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const bytes = (name: string, count = 32) => fromBase64Url(given.get(name) ?? "", count);
  const [deployment, secret] = [bytes("deployment"), bytes("invitation", 16)];
  const whole = {deployment, invitation: secret};
  const broken = Object.entries(whole).some(([name, read]) => given.has(name) && !read);
  const until = 1000 * Number(given.get("until")) || Infinity;
  return {secret, until, deployment, round: given.get("round") ?? "", gateway: given.get("gateway") ?? "", broken};
}

/** Returns the address of the gateway, or undefined: this page's own, or for a file the one that the invitation names. */
function gatewayUrl(invitation: Invitation): string | undefined {
  if (location.protocol !== "file:") return new URL("../", location.href.split("#")[0]).href;
  const given = invitation.gateway || localStorage.getItem("croupier gateway") || "";
  let url: URL;
  try {
    url = new URL(given);
  } catch {
    return undefined;
  }
  const local = ["127.0.0.1", "localhost"].includes(url.hostname);
  if (url.protocol !== "https:" && !(url.protocol === "http:" && local)) return undefined;
  localStorage.setItem("croupier gateway", url.href);
  return url.href.endsWith("/") ? url.href : `${url.href}/`;
}

class Page {
  private texts = new Texts(pageLanguage(navigator.languages));
  private languages = [...navigator.languages];
  private here?: Here;
  private settings?: Settings;
  private shown?: ShownSurvey;
  /** Who the person has said that they are, where others have answered from here: see `whose`. */
  private said?: string;
  /** Who they are. */
  private person = "";
  /** The key of which the accountant has said that it may answer. */
  private admitted = "";
  private notice = "";
  private again: () => void = () => this.start();

  constructor(
    private readonly main: HTMLElement,
    private invitation: Invitation,
  ) {}

  private get host(): string {
    return location.protocol === "file:" ? "" : location.host;
  }

  // ------------------------------------------------------------------ screens

  private screen(...children: (Node | undefined)[]): void {
    const notice = this.notice ? h("p", {class: "notice", role: "status"}, this.notice) : undefined;
    this.main.replaceChildren(...[notice, ...children].filter((one): one is HTMLElement => one !== undefined));
    this.main.querySelector<HTMLElement>("h1")?.focus({preventScroll: true});
    scrollTo(0, 0);
  }

  private message(title: Name, ...children: (Node | string)[]): HTMLElement {
    return h("section", {class: "card"}, h("h1", {tabindex: -1}, this.texts.say(title)), ...children);
  }

  private header(): void {
    document.documentElement.lang = this.texts.language;
    document.title = this.here ? `${this.here.deployment.name} · croupier` : "croupier";
    const options = LANGUAGES.map(({tag, name}) => h("option", {value: tag, selected: tag === this.texts.language}, name));
    const select = h("select", {id: "language", "aria-label": this.texts.say("language")}, ...options);
    select.addEventListener("change", () => {
      this.texts = new Texts(select.value);
      this.languages = [select.value, ...navigator.languages];
      if (this.here) Object.assign(this.here, {texts: this.texts, languages: this.languages});
      this.header();
      this.again();
    });
    document.getElementById("deployment")!.textContent = this.here?.deployment.name ?? "";
    document.getElementById("languages")!.replaceChildren(select);
    document.getElementById("skip")!.textContent = this.texts.say("skip");
  }

  private failed(error: unknown, nothingSent = true): void {
    const {texts} = this;
    this.again = () => this.failed(error, nothingSent);
    if (error instanceof NeedsProgram) {
      return this.screen(this.message("needs program", h("p", {}, texts.say("needs program text", {what: error.message}))));
    }
    const known = error instanceof Refused || error instanceof Distrust;
    const told = known ? sentence(texts, error) : texts.say("BROWSER");
    const detail = error instanceof Refused ? error.code : String(error instanceof Error ? error.message : error);
    this.screen(
      h(
        "section",
        {class: "card stopped", role: "alert"},
        h("h1", {tabindex: -1}, texts.say("stopped")),
        h("p", {}, told),
        nothingSent ? h("p", {}, h("strong", {}, texts.say("nothing sent"))) : "",
        h("details", {}, h("summary", {}, texts.say("details")), h("p", {}, h("code", {}, detail))),
        h("div", {class: "actions"}, h("button", {class: "plain", onclick: () => this.start()}, texts.say("try again"))),
      ),
    );
  }

  // ------------------------------------------------------------------ what happens

  async start(): Promise<void> {
    this.again = () => this.header();
    this.header();
    this.screen(h("p", {class: "loading", role: "status"}, this.texts.say("loading")));
    if (this.invitation.broken) return this.failed(new Refused("BROKEN_LINK", "", false));
    const url = gatewayUrl(this.invitation);
    if (!url) return this.askForGateway();
    try {
      const outbox = this.here?.outbox ?? (await Outbox.open());
      const gateway = new Gateway(url);
      const {deployment} = readNewest(await gateway.deployment());
      const named = this.invitation.deployment && hex(this.invitation.deployment);
      const others = await outbox.replaced(deployment.name, deployment.fingerprint, url);
      const isOther = named !== undefined && named !== deployment.fingerprint;
      const versions = isOther || others.length ? readVersions(await gateway.versions()) : [];
      if (isOther) checkAgreed(versions, named, deployment);
      this.here = {gateway, outbox, deployment, texts: this.texts, languages: this.languages};
      const before = others.find((one) => !isAgreed(versions, one.fingerprint, deployment));
      if (before) {
        const isOlder = before.deployment === deployment.name && (before.version ?? 1) > deployment.version;
        if (!named || isOlder) return this.askAboutChange(before, isOlder);
        this.notice = this.texts.say("changed by invitation");
      }
      await this.pin();
    } catch (error) {
      this.failed(error);
    }
  }

  /** Stores which deployment this is, and whose invitation; then takes the invitation out of the address bar. */
  private async pin(): Promise<void> {
    const {outbox, deployment} = this.here!;
    const {secret, round} = this.invitation;
    const {fingerprint, version} = deployment;
    const {url} = this.here!.gateway;
    this.settings = await outbox.change(deployment.name, ({invitations = []}) => {
      const known = secret && invitations.find((one) => equal(one.secret, secret));
      const newest = secret && {invitations: [...invitations.filter((one) => one !== known), known ?? {secret, round}]};
      return {fingerprint, version, gateway: url, ...newest};
    });
    if (!this.settings.privateKey) this.settings = await outbox.set(deployment.name, {privateKey: randomBytes(32)});
    forgetSecret();
    this.invitation = {...this.invitation, secret: undefined};
    this.header();
    await this.goOnOrAsk();
  }

  /** Returns the key that signs answers: of the invitation that was made for this (`invitationHash`), or else one's own. */
  private privateKey(invited: string): Bytes {
    const {invitations = [], privateKey} = this.settings!;
    const made = invitations.filter((one) => one.of === invited).at(-1);
    return made ? invitedKey(made.secret, fromHex(invited)) : privateKey!;
  }

  private clientKey(invited: string): string {
    return hex(ed25519.getPublicKey(this.privateKey(invited)));
  }

  /** What invitations to the survey that is shown are bound to, in hexadecimal. */
  private get invited(): string {
    return hex(invitationHash(this.shown!.survey));
  }

  /** Notes what the invitations were made for whose links name this round. */
  private async bind({survey, roundId}: Terms): Promise<void> {
    const of = hex(invitationHash(survey));
    const isUnbound = (one: {round: string; of?: string}) => !one.of && one.round === roundId;
    if (!this.settings!.invitations?.some(isUnbound)) return;
    const {outbox, deployment} = this.here!;
    this.settings = await outbox.change(deployment.name, ({invitations = []}) => ({
      invitations: invitations.map((one) => (isUnbound(one) ? {...one, of} : one)),
    }));
  }

  /** Returns this person's answers to the wave that an answer is of, in the order in which they were asked. */
  private async ownLike(answer: Answer): Promise<Answer[]> {
    const {outbox, deployment} = this.here!;
    return answeredBefore(answer, personOf(answer), await outbox.answers(deployment.name));
  }

  private async goOnOrAsk(): Promise<void> {
    const {outbox, deployment, gateway} = this.here!;
    try {
      const answers = await outbox.answers(deployment.name);
      const begun = answers.find((one) => one.state !== "accepted" && one.clientKey === this.clientKey(one.invited));
      if (begun) {
        this.notice = this.texts.say("going on");
        return await this.send(await this.ownLike(begun));
      }
      const named = await fetchRound(gateway, deployment, this.invitation.round);
      await this.bind(named.terms);
      this.shown = await fetchSurvey(gateway, deployment, await newestWave(gateway, deployment, named));
      const {survey} = this.shown;
      const versionOf = async (wave: number) => (await fetchRound(gateway, deployment, roundIdOf(survey, 0, wave))).terms.survey;
      for (const known of this.consents(survey)) await checkContinues(readSurvey(known.survey), survey, versionOf);
      await this.ask();
    } catch (error) {
      if (error instanceof Refused && error.code === "NO_OPEN_ROUND") return this.nothingOpen();
      this.failed(error);
    }
  }

  private consents({message: {surveyId}}: Survey): Consent[] {
    return this.settings!.consents?.filter((one) => one.surveyId === surveyId) ?? [];
  }

  /** Returns what is asked. */
  private get asked(): Asked {
    return {surveyId: this.shown!.survey.message.surveyId, wave: this.shown!.wave};
  }

  private async ask(): Promise<void> {
    this.again = () => void this.ask();
    try {
      await this.askOrSay();
    } catch (error) {
      if (error instanceof OtherPerson) return this.askWhetherOther(error.persons);
      if (error instanceof Refused && error.code === "UNKNOWN_CLIENT") return this.unknown(error, this.shown!.survey);
      this.failed(error);
    }
  }

  private async askOrSay(): Promise<void> {
    const {outbox, gateway, deployment, texts} = this.here!;
    const {survey, rounds, open} = this.shown!;
    const [answers, kept] = [await outbox.answers(deployment.name), await outbox.kept(deployment.name)];
    this.settings = (await outbox.settings(deployment.name))!;
    const clientKey = this.clientKey(this.invited);
    this.person = whose(this.asked, clientKey, answers, kept, this.said);
    const own = answeredBefore(this.asked, this.person, answers);
    if (own.length) return await this.finished(own, true);
    if (!open) return this.screen(this.message("closed"), await this.past());
    if (Date.now() > this.invitation.until) return this.expired();
    if (this.admitted !== clientKey) {
      try {
        await checkAdmission(gateway, rounds, this.privateKey(this.invited));
        this.admitted = clientKey;
      } catch (error) {
        if (!(error instanceof Refused && error.mayPass)) throw error; // an answer is stored, and sent later
      }
    }
    const counted = rounds.flatMap(({terms}) => [terms.roundId, seriesOf(terms)?.name ?? ""]);
    const limit = this.settings.lifetimeEpsilon;
    const leaves = limit === undefined ? Infinity : limit - spent(answers, kept, counted) + 1e-12;
    const consent = this.consents(survey).find((one) => one.person === this.person);
    const form = surveyForm({
      ...{shown: this.shown!, deployment, languages: this.languages, texts, host: this.host, leaves},
      consented: consent && equal(consent.survey, survey.bytes) ? consent.at : undefined,
      leave: consent && (() => void this.leave(survey, this.person)),
      send: (given) => void this.answer(given),
      decline: () => this.declined(),
    });
    this.screen(form, await this.past());
  }

  private async past(without: string[] = []): Promise<HTMLElement> {
    const {outbox, deployment} = this.here!;
    const shown = history(this.here!, await outbox.answers(deployment.name), await outbox.kept(deployment.name), this.settings!, without);
    shown.addEventListener("limit", () => void (this.shown && !without.length ? this.ask() : undefined));
    return shown;
  }

  private declined(): void {
    this.again = () => this.declined();
    const back = h("button", {class: "plain", onclick: () => void this.ask()}, this.texts.say("back"));
    this.screen(this.message("declined", h("p", {}, this.texts.say("declined text")), h("div", {class: "actions"}, back)));
  }

  private async answer(given: GivenAnswers): Promise<void> {
    const privateKey = this.privateKey(this.invited);
    await this.begin(async () => {
      const fresh: Answer[] = [];
      for (const [at, {value, epsilon, isDrawn}] of given.entries()) {
        const round = this.shown!.rounds[at]!;
        const {name, wordings} = round.terms.question;
        const title = bestWording(wordings, this.languages)?.question ?? name;
        if (value === undefined) continue;
        const kept = await this.keptReport(round.terms, {value, epsilon, isDrawn});
        fresh.push(await prepareAnswer(round, title, value, kept?.epsilon ?? epsilon, privateKey, kept?.report));
      }
      await this.consent();
      return fresh;
    });
  }

  /** What the person has set and said, by which the outbox admits their answers. */
  private get own(): {lifetimeEpsilon?: number; person?: string} {
    return {lifetimeEpsilon: this.settings!.lifetimeEpsilon, person: this.said};
  }

  /** Returns the report that is kept for an answer in a permanent survey; undefined where each wave is randomized by itself. */
  private async keptReport(terms: Terms, wanted: {value: number; epsilon: number; isDrawn: boolean}) {
    const series = seriesOf(terms);
    const {outbox, deployment} = this.here!;
    if (series === undefined) return undefined;
    const wave = {...this.asked, roundId: terms.roundId, series, deployment: deployment.name, clientKey: this.clientKey(this.invited)};
    return outbox.keepReport(wave, wanted, (value, epsilon) => drawReport(terms, value, epsilon), this.own);
  }

  /** Stores that the person consents to all waves of the version that is shown. */
  private async consent(): Promise<void> {
    const {outbox, deployment} = this.here!;
    const {bytes, message} = this.shown!.survey;
    if (!message.schedule) return;
    const fresh = {surveyId: message.surveyId, person: this.person, survey: bytes, at: Date.now()};
    this.settings = await outbox.consent(deployment.name, fresh);
  }

  private async leave(survey: Survey, person: string): Promise<void> {
    this.again = () => void this.leave(survey, person);
    const {outbox, deployment, texts} = this.here!;
    this.settings = await outbox.leave(deployment.name, survey.message.surveyId, hex(invitationHash(survey)), person);
    this.screen(this.message("left study", h("p", {}, texts.say("left study text"))), await this.past());
  }

  /** Shows a title, a sentence, and what was answered before. */
  private async say(title: Name, text: Name, values: Record<string, string> = {}): Promise<void> {
    this.screen(this.message(title, h("p", {role: "alert"}, this.texts.say(text, values))), await this.past());
  }

  private async begin(prepare: () => Promise<Answer[]>): Promise<void> {
    const {outbox} = this.here!;
    this.notice = "";
    const number = (value: number) => this.texts.number(value, 15);
    try {
      await this.send(await outbox.begin(await prepare(), this.own));
    } catch (error) {
      if (error instanceof OtherPerson) return this.askWhetherOther(error.persons);
      if (error instanceof SeriesFull) return await this.say("limit", "SERIES_FULL", {waves: number(error.waves)});
      if (error instanceof LargerBefore) return await this.say("limit", "LARGER_BEFORE", {epsilon: number(error.epsilon)});
      if (error instanceof LimitExceeded) return await this.say("limit", "LIMIT", {spent: number(error.spent), limit: number(error.limit)});
      this.failed(error);
    }
  }

  /** Brings answers to the rounds of one survey as far as they come. */
  private async send(answers: Answer[]): Promise<void> {
    const {gateway, outbox, deployment, texts} = this.here!;
    const {survey} = termsOf(answers[0]!, deployment);
    const several = !isOneQuestion(survey);
    const items = several
      ? answers.map((one) => h("li", {dir: "auto"}, one.title))
      : STEPS.map((step) => h("li", {}, texts.say(`step ${step}`)));
    const advance = (answer: number, step: Step) => {
      const at = step === "accepted" ? STEPS.length : STEPS.indexOf(step);
      const done = several ? answer + Number(step === "accepted") : at;
      items.forEach((item, index) => item.classList.toggle("done", index < done));
    };
    this.screen(
      this.message(several ? "sending all" : "sending", h("ol", {class: "steps", role: "status"}, ...items), h("p", {class: "quiet"}, texts.say("keep open"))),
    );
    this.notice = "";
    const done: Answer[] = [];
    try {
      for (const [at, answer] of answers.entries()) {
        done.push(await goOn(gateway, outbox, deployment, answer, (step) => advance(at, step)));
      }
      await this.finished(done, false);
    } catch (error) {
      const refused = error instanceof Refused && !error.mayPass;
      if (refused) for (const answer of answers) await outbox.discard(answer); // those of which nothing was sent
      if (refused && error.code === "UNKNOWN_CLIENT") return this.unknown(error, survey);
      const ids = answers.map((one) => one.id);
      const stored = (await outbox.answers(deployment.name)).filter((one) => ids.includes(one.id));
      this.failed(error, stored.every((one) => one.state === "prepared")); // before one is sealed only blinded messages are sent
    }
  }

  private async finished(answers: Answer[], before: boolean): Promise<void> {
    this.again = () => void this.finished(answers, before);
    const [first] = answers;
    const after = this.afterWave(termsOf(first!, this.here!.deployment), personOf(first!));
    this.screen(receipt(this.here!, answers, before), after, await this.past(answers.map((one) => one.id)));
  }

  /** Returns what comes after a wave: the next one, and how to leave; undefined of a survey that is asked once. */
  private afterWave({survey, manifest}: Terms, person: string): HTMLElement | undefined {
    const {texts} = this;
    const {schedule} = survey.message;
    if (!schedule) return undefined;
    const next = nextWave(schedule, manifest.wave, manifest.opensUnixS);
    const said = next === undefined ? texts.say("last wave") : texts.say("next wave", {when: texts.when(next)});
    const leave = h("button", {class: "plain", onclick: () => void this.leave(survey, person)}, texts.say("leave study"));
    return h("section", {class: "card"}, h("p", {}, said), h("div", {class: "actions"}, leave));
  }

  /** Shows why a key does not admit. */
  private unknown(error: Refused, survey: Survey): void {
    if (Date.now() > this.invitation.until) return this.expired();
    return isOneQuestion(survey) ? this.notInvited(hex(invitationHash(survey))) : this.failed(error);
  }

  private expired(): void {
    this.again = () => this.expired();
    const when = this.texts.when(this.invitation.until);
    this.screen(this.message("expired", h("p", {role: "alert"}, this.texts.say("expired text", {when}))));
  }

  private async nothingOpen(): Promise<void> {
    this.again = () => void this.nothingOpen();
    this.screen(this.message("no round", h("p", {}, this.texts.say("no round text"))), await this.past());
  }

  private notInvited(invited: string): void {
    this.again = () => this.notInvited(invited);
    const {texts} = this;
    const key = h("p", {}, groups(this.clientKey(invited)));
    this.screen(
      this.message("not invited", h("p", {}, texts.say("not invited text")), h("h2", {}, texts.say("your key")), key),
    );
  }

  /** Asks who the person is, where others have answered from here with another invitation or key. */
  private askWhetherOther(persons: Person[]): void {
    this.again = () => this.askWhetherOther(persons);
    const {texts} = this;
    const answers = (said: string, text: string) =>
      h("button", {class: "plain", onclick: () => ((this.said = said), void this.ask())}, text);
    const same = persons.map(({name, at}) => answers(name, at ? texts.say("it was me", {when: texts.when(at)}) : texts.say("i have left")));
    const other = answers(this.clientKey(this.invited), texts.say("i am other"));
    const told = h("p", {}, texts.say("other person text"));
    this.screen(this.message("other person", told, h("div", {class: "actions"}, ...same, other)));
  }

  /** Asks about a deployment to which the services of the one that is known here have not agreed. */
  private askAboutChange(before: Settings, isOlder: boolean): void {
    this.again = () => this.askAboutChange(before, isOlder);
    const {texts} = this;
    const versions = {before: texts.number(before.version ?? 1), now: texts.number(this.here!.deployment.version)};
    const accept = h("button", {class: "plain", onclick: () => void this.pin()}, texts.say("accept change"));
    this.screen(
      this.message(
        "changed",
        h("p", {role: "alert"}, isOlder ? texts.say("older text", versions) : texts.say("changed text")),
        h("h2", {}, texts.say("before")),
        h("p", {}, groups(before.fingerprint)),
        h("h2", {}, texts.say("now")),
        h("p", {}, groups(this.here!.deployment.fingerprint)),
        h("div", {class: "actions"}, accept),
      ),
    );
  }

  private askForGateway(): void {
    this.again = () => this.askForGateway();
    const {texts} = this;
    const input = h("input", {id: "gateway", type: "url", placeholder: "https://"});
    const go = (event: Event) => {
      event.preventDefault();
      this.invitation.gateway = input.value.trim();
      void this.start();
    };
    const label = h("label", {for: "gateway"}, texts.say("gateway"));
    const form = h("form", {novalidate: true, onsubmit: go}, label, input, h("button", {class: "primary"}, texts.say("go")));
    this.screen(this.message("gateway needed", h("p", {}, texts.say("gateway needed text")), form));
  }
}

function isAgreed(versions: SignedVersion[], fingerprint: string, newest: Deployment): boolean {
  try {
    checkAgreed(versions, fingerprint, newest);
    return true;
  } catch {
    return false;
  }
}

/** Leaves the round in the address, and takes the secret out of it and out of the browser's history. */
function forgetSecret(): void {
  const left = new URLSearchParams(location.hash.slice(1));
  left.delete("invitation");
  const fragment = left.toString();
  globalThis.history.replaceState(null, "", `${location.href.split("#")[0]}${fragment ? `#${fragment}` : ""}`);
}

/** Starts the page, or does nothing where there is none (the tests under Node). */
export function startPage(): void {
  const main = globalThis.document?.getElementById("main");
  if (!main) return;
  const page = new Page(main, readInvitation(location.hash));
  void page.start();
  addEventListener("hashchange", () => {
    if (readInvitation(location.hash).secret) location.reload(); // another invitation was opened in this tab
  });
}
