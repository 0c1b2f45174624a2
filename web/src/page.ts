// The page itself: from the invitation to the receipt. Every screen replaces the one before.
import {ed25519} from "@noble/curves/ed25519.js";

import {history, type Here, receipt, sentence} from "./afterwards.js";
import {begin, fetchRound, goOn, type Shown, type Step} from "./answering.js";
import {type Bytes, fromBase64Url, hex, randomBytes} from "./bytes.js";
import {Gateway} from "./calls.js";
import {readDeployment} from "./deployment.js";
import {type Given, questionForm} from "./form.js";
import {type Answer, LimitExceeded, OtherPerson, Outbox, type Settings, spent} from "./outbox.js";
import {Distrust, NeedsProgram, Refused} from "./refusals.js";
import {bestWording, LANGUAGES, type Name, pageLanguage, Texts} from "./texts.js";
import {fingerprint as groups, h} from "./view.js";

const STEPS = ["randomize", "tickets", "seal", "send"] as const satisfies Step[];

/** What the link of an invitation says, after the # of the address, which browsers do not send to servers. */
interface Invitation {
  key?: Bytes;
  deployment?: Bytes;
  round: string;
  gateway: string;
  /** A part of it cannot be read: the link was cut off. */
  broken: boolean;
}

function readInvitation(fragment: string): Invitation {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const bytes = (name: string) => fromBase64Url(given.get(name) ?? "");
  const [key, deployment] = [bytes("key"), bytes("deployment")];
  const broken = (given.has("key") && !key) || (given.has("deployment") && !deployment);
  return {key, deployment, round: given.get("round") ?? "", gateway: given.get("gateway") ?? "", broken};
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
  private shown?: Shown;
  private anotherPerson = false;
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
      const deployment = readDeployment(await gateway.deployment());
      const named = this.invitation.deployment && hex(this.invitation.deployment);
      if (named && named !== deployment.fingerprint) throw new Distrust("the servers are not those of the invitation");
      this.here = {gateway, outbox, deployment, texts: this.texts, languages: this.languages};
      const [before] = await outbox.replaced(deployment.name, deployment.fingerprint, url);
      if (before) {
        if (!named) return this.askAboutChange(before);
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
    const key = this.invitation.key && {privateKey: this.invitation.key};
    const {fingerprint} = deployment;
    this.settings = await outbox.set(deployment.name, {fingerprint, gateway: this.here!.gateway.url, ...key});
    if (!this.settings.privateKey) this.settings = await outbox.set(deployment.name, {privateKey: randomBytes(32)});
    forgetSecret();
    this.invitation = {...this.invitation, key: undefined};
    this.header();
    await this.goOnOrAsk();
  }

  private get clientKey(): string {
    return hex(ed25519.getPublicKey(this.settings!.privateKey!));
  }

  private async goOnOrAsk(): Promise<void> {
    const {outbox, deployment, gateway} = this.here!;
    try {
      const answers = await outbox.answers(deployment.name);
      const begun = answers.find((one) => one.state !== "accepted" && one.clientKey === this.clientKey);
      if (begun) {
        this.notice = this.texts.say("going on");
        return await this.send(begun);
      }
      this.shown = await fetchRound(gateway, deployment, this.invitation.round);
      await this.ask();
    } catch (error) {
      if (error instanceof Refused && error.code === "NO_OPEN_ROUND") return this.nothingOpen();
      this.failed(error);
    }
  }

  private async ask(): Promise<void> {
    this.again = () => void this.ask();
    const {outbox, deployment, texts} = this.here!;
    const {terms, open} = this.shown!;
    const answers = await outbox.answers(deployment.name);
    this.settings = (await outbox.settings(deployment.name))!;
    const here = answers.filter((one) => one.roundId === terms.roundId);
    const own = here.find((one) => one.clientKey === this.clientKey);
    if (own) return this.finished(own, true);
    if (here.length && !this.anotherPerson) return this.askWhetherOther();
    if (!open) return this.screen(this.message("closed"), await this.past());
    const limit = this.settings.lifetimeEpsilon;
    const leaves = limit === undefined ? Infinity : limit - spent(answers, terms.roundId) + 1e-12;
    const wording = bestWording(terms.question.wordings, this.languages);
    const form = questionForm({
      ...{terms, deployment, wording, texts, host: this.host, leaves},
      send: (given) => void this.answer(given, wording?.title || wording?.question || terms.question.name),
      decline: () => this.declined(),
    });
    this.screen(form, await this.past());
  }

  private async past(without = ""): Promise<HTMLElement> {
    const {outbox, deployment} = this.here!;
    const shown = history(this.here!, await outbox.answers(deployment.name), this.settings!, without);
    shown.addEventListener("limit", () => void (this.shown && !without ? this.ask() : undefined));
    return shown;
  }

  private declined(): void {
    this.again = () => this.declined();
    const back = h("button", {class: "plain", onclick: () => void this.ask()}, this.texts.say("back"));
    this.screen(this.message("declined", h("p", {}, this.texts.say("declined text")), h("div", {class: "actions"}, back)));
  }

  private async answer(given: Given, title: string): Promise<void> {
    const {outbox} = this.here!;
    const {privateKey, lifetimeEpsilon} = this.settings!;
    this.notice = "";
    try {
      const args = [title, given.value, given.epsilon, privateKey!, lifetimeEpsilon, this.anotherPerson] as const;
      await this.send(await begin(outbox, this.shown!, ...args));
    } catch (error) {
      if (error instanceof OtherPerson) return this.askWhetherOther();
      if (error instanceof LimitExceeded) {
        const {spent: so, limit} = error;
        const values = {spent: this.texts.number(so, 15), limit: this.texts.number(limit, 15)};
        return this.screen(this.message("limit", h("p", {role: "alert"}, this.texts.say("LIMIT", values))), await this.past());
      }
      this.failed(error);
    }
  }

  private async send(answer: Answer): Promise<void> {
    const {gateway, outbox, deployment, texts} = this.here!;
    const items = STEPS.map((step) => h("li", {}, texts.say(`step ${step}`)));
    const advance = (step: Step) => {
      const at = step === "accepted" ? STEPS.length : STEPS.indexOf(step);
      items.forEach((item, index) => item.classList.toggle("done", index < at));
    };
    this.screen(
      this.message("sending", h("ol", {class: "steps", role: "status"}, ...items), h("p", {class: "quiet"}, texts.say("keep open"))),
    );
    this.notice = "";
    try {
      await this.finished(await goOn(gateway, outbox, deployment, answer, advance), false);
    } catch (error) {
      if (error instanceof Refused && error.code === "UNKNOWN_CLIENT") return this.notInvited();
      const stored = (await outbox.answers(deployment.name)).find((one) => one.id === answer.id);
      this.failed(error, !stored || stored.state === "prepared"); // before it is sealed only blinded messages are sent
    }
  }

  private async finished(answer: Answer, before: boolean): Promise<void> {
    this.again = () => void this.finished(answer, before);
    this.screen(receipt(this.here!, answer, before), await this.past(answer.id));
  }

  private async nothingOpen(): Promise<void> {
    this.again = () => void this.nothingOpen();
    this.screen(this.message("no round", h("p", {}, this.texts.say("no round text"))), await this.past());
  }

  private notInvited(): void {
    this.again = () => this.notInvited();
    const {texts} = this;
    const key = h("p", {}, groups(this.clientKey));
    this.screen(
      this.message("not invited", h("p", {}, texts.say("not invited text")), h("h2", {}, texts.say("your key")), key),
    );
  }

  private askWhetherOther(): void {
    this.again = () => this.askWhetherOther();
    const other = () => {
      this.anotherPerson = true;
      void this.ask();
    };
    const button = h("button", {class: "plain", onclick: other}, this.texts.say("i am other"));
    const told = h("p", {}, this.texts.say("other person text"));
    this.screen(this.message("other person", told, h("div", {class: "actions"}, button)));
  }

  private askAboutChange(before: string): void {
    this.again = () => this.askAboutChange(before);
    const {texts} = this;
    const accept = h("button", {class: "plain", onclick: () => void this.pin()}, texts.say("accept change"));
    this.screen(
      this.message(
        "changed",
        h("p", {role: "alert"}, texts.say("changed text")),
        h("h2", {}, texts.say("before")),
        h("p", {}, groups(before)),
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

/** Leaves the round in the address, and takes the secret out of it and out of the browser's history. */
function forgetSecret(): void {
  const left = new URLSearchParams(location.hash.slice(1));
  left.delete("key");
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
    if (readInvitation(location.hash).key) location.reload(); // another invitation was opened in this tab
  });
}
