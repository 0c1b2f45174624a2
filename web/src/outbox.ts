// What this browser keeps, in IndexedDB: answers before they are sent, what they have spent, and what was pinned.
//
// An answer is stored, and counted against the person's own limit, in one transaction, before anything of it leaves the
// memory of the page. From then on the same bytes are sent, by whichever tab goes on with them.
import {type Bytes, equal, hex, randomBytes} from "./bytes.js";
import type {Prepared} from "./round.js";

const KEPT_DAYS = 30;

/** One answer to one round under one key. What was answered is not in it. */
export interface Answer {
  id: string;
  deployment: string;
  roundId: string;
  clientKey: string;
  title: string;
  /** The hash of the survey that the round is of, in hexadecimal. */
  survey?: string;
  /** What the invitation is bound to that the key follows from, in hexadecimal: that hash, or a hash of the study. */
  invited?: string;
  /** The signed manifest, serialised. */
  manifest: Bytes;
  epsilon: number;
  state: "prepared" | "sealed" | "accepted";
  at: number;
  prepared?: Prepared & {privateKey: Bytes};
  submission?: Bytes;
  inclusion?: [Bytes, Bytes][];
  /** The series of a permanent study that the round is of: what it has spent is with the reports that are kept. */
  series?: string;
}

/** The waves of a permanent study's question, and whose reports are kept for them. */
export interface Series {
  deployment: string;
  studyId: string;
  name: string;
  clientKey: string;
}

/** The report of one answer of a person to a permanent study's question: the same in all waves. */
export interface KeptReport extends Series {
  id: string;
  /** The answer; of a study that the person has left, random digits. */
  value: number | string;
  epsilon: number;
  /** Missing in a study that the person has left. */
  report?: Bytes;
  /** Whether the answer was drawn, for a question that the person leaves out. */
  isDrawn: boolean;
}

/** What is known of a deployment here. */
export interface Settings {
  deployment: string;
  /** Of the version that was believed last, and its number. */
  fingerprint: string;
  version?: number;
  /** The gateway through which it was last reached. */
  gateway?: string;
  privateKey?: Bytes;
  /** The secret of the last invitation to a survey that was opened here. */
  invitation?: Bytes;
  /** The version of each study that the person has consented to, by the study's name: its hash, and when. */
  consents?: Record<string, {hash: string; at: number}>;
  lifetimeEpsilon?: number;
}

/** The person's own limit does not allow another answer. */
export class LimitExceeded extends Error {
  constructor(
    readonly spent: number,
    readonly limit: number,
  ) {
    super("the person's own limit");
  }
}

/** A permanent study's question was answered with a larger budget before, which another answer would spend again. */
export class LargerBefore extends Error {
  constructor(readonly epsilon: number) {
    super("a larger budget before");
  }
}

/** Someone has answered this round here under another key. */
export class OtherPerson extends Error {}

export const answerId = (deployment: string, roundId: string, clientKey: string): string =>
  JSON.stringify([deployment, roundId, clientKey]);

/** Adds decimals: a number means its shortest decimal form, so that three times 0.1 is 0.3 and no more. */
export function decimalSum(values: number[]): number {
  const parts = values.map((value) => {
    const [, whole = "0", rest = "", exponent = "0"] = /^(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/.exec(String(value)) ?? [];
    return {digits: BigInt(whole + rest), exponent: Number(exponent) - rest.length};
  });
  const least = Math.min(0, ...parts.map((part) => part.exponent));
  const sum = parts.reduce((total, part) => total + part.digits * 10n ** BigInt(part.exponent - least), 0n);
  return Number(`${sum}e${least}`);
}

/** Returns what the other rounds have spent; a person answers a round once, so of each round the most counts. The waves of
 * a permanent study have spent what the different reports of one person have, of the persons the most. */
export function spent(answers: Answer[], kept: KeptReport[], without: string[] = []): number {
  const most = new Map<string, number>();
  const raise = (name: string, epsilon: number) => most.set(name, Math.max(most.get(name) ?? 0, epsilon));
  for (const {roundId, epsilon, series} of answers) if (series === undefined && !without.includes(roundId)) raise(roundId, epsilon);
  for (const {name, clientKey} of kept.filter((one) => !without.includes(one.name))) {
    const ofPerson = kept.filter((one) => one.name === name && one.clientKey === clientKey);
    raise(`series ${name}`, decimalSum(ofPerson.map((one) => one.epsilon)));
  }
  return decimalSum([...most.values()]);
}

function done<Value>(request: IDBRequest<Value>): Promise<Value> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export class Outbox {
  private constructor(private readonly db: IDBDatabase) {}

  static async open(name = "croupier"): Promise<Outbox> {
    const request = indexedDB.open(name, 2);
    request.onupgradeneeded = ({oldVersion}) => {
      if (oldVersion < 1) {
        request.result.createObjectStore("answers", {keyPath: "id"});
        request.result.createObjectStore("settings", {keyPath: "deployment"});
      }
      request.result.createObjectStore("kept", {keyPath: "id"});
    };
    const db = await done(request);
    db.onversionchange = () => db.close(); // a newer page in another tab needs newer stores
    const outbox = new Outbox(db);
    await outbox.forgetOld(Date.now() - KEPT_DAYS * 86_400_000);
    return outbox;
  }

  /** Runs one transaction, and returns when it is on the disk. What `work` throws undoes it. */
  private async alone<Value>(name: string, work: (store: IDBObjectStore, kept: IDBObjectStore) => Promise<Value>): Promise<Value> {
    const transaction = this.db.transaction([name, "kept"], "readwrite", {durability: "strict"});
    const written = new Promise<void>((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error ?? new Error("the browser could not store the answer"));
    });
    try {
      const value = await work(transaction.objectStore(name), transaction.objectStore("kept"));
      await written;
      return value;
    } catch (error) {
      written.catch(() => undefined);
      try {
        transaction.abort();
      } catch {
        // it has ended already
      }
      throw error;
    }
  }

  private read(name: string): IDBObjectStore {
    return this.db.transaction(name).objectStore(name);
  }

  /** Returns the answers of a deployment, newest first. */
  async answers(deployment: string): Promise<Answer[]> {
    const all: Answer[] = await done(this.read("answers").getAll());
    return all.filter((one) => one.deployment === deployment).sort((a, b) => b.at - a.at);
  }

  /** Returns the reports that are kept for permanent studies of a deployment, and what left ones have spent. */
  async kept(deployment: string): Promise<KeptReport[]> {
    const all: KeptReport[] = await done(this.read("kept").getAll());
    return all.filter((one) => one.deployment === deployment);
  }

  /**
   * Returns the report of an answer that is sent in every wave of a series. It is drawn and stored in one transaction when
   * the answer is given for the first time, and every answer to the series has the budget of the first one.
   */
  async keepReport(
    series: Series,
    wanted: {value: number; epsilon: number; isDrawn: boolean},
    draw: (value: number, epsilon: number) => Bytes,
    lifetimeEpsilon: number | undefined,
  ): Promise<KeptReport & {report: Bytes}> {
    return this.alone("answers", async (store, keptStore) => {
      const ofDeployment = (one: {deployment: string}) => one.deployment === series.deployment;
      const kept = (await done<KeptReport[]>(keptStore.getAll())).filter(ofDeployment);
      const mine = kept.filter((one) => one.name === series.name && one.clientKey === series.clientKey);
      const found = mine.find((one) => (wanted.isDrawn && one.isDrawn) || one.value === wanted.value);
      if (found?.report) return {...found, report: found.report};
      const epsilon = mine[0]?.epsilon ?? wanted.epsilon;
      if (epsilon > wanted.epsilon) throw new LargerBefore(epsilon);
      const id = JSON.stringify([series.deployment, series.clientKey, series.name, wanted.value]);
      const fresh = {...series, ...wanted, id, epsilon, report: draw(wanted.value, epsilon)};
      const answers = (await done<Answer[]>(store.getAll())).filter(ofDeployment);
      const before = spent(answers, kept);
      if (lifetimeEpsilon !== undefined && spent(answers, [...kept, fresh]) > lifetimeEpsilon) throw new LimitExceeded(before, lifetimeEpsilon);
      await done(keptStore.add(fresh));
      return fresh;
    });
  }

  /**
   * Stores answers and counts them, or returns those that this person has stored for the round or survey before.
   *
   * All are of one survey, or there is one of a round by itself.
   */
  async begin(fresh: Answer[], lifetimeEpsilon: number | undefined, anotherPerson: boolean): Promise<Answer[]> {
    const isSame = (one: Answer, other: Answer) =>
      other.roundId === one.roundId || (one.survey !== undefined && other.survey === one.survey);
    return this.alone("answers", async (store, keptStore) => {
      const all: Answer[] = await done(store.getAll());
      const kept = (await done<KeptReport[]>(keptStore.getAll())).filter((one) => one.deployment === fresh[0]!.deployment);
      const here = all.filter((one) => one.deployment === fresh[0]!.deployment);
      const before = here.filter((one) => fresh.some((other) => isSame(one, other)));
      const own = before.filter((one) => one.clientKey === fresh[0]!.clientKey);
      if (own.length) return own;
      if (!anotherPerson && before.length) throw new OtherPerson();
      if (lifetimeEpsilon !== undefined && spent([...here, ...fresh], kept) > lifetimeEpsilon) {
        const rounds = fresh.map((one) => one.roundId);
        throw new LimitExceeded(spent(here, kept, rounds), lifetimeEpsilon);
      }
      for (const one of fresh) await done(store.add(one));
      void navigator.storage?.persist?.().catch(() => false); // asks the browser not to delete it when space is short
      return fresh;
    });
  }

  /** Changes an answer that is in one of these states, and returns it as it then is; another tab may have been first. */
  async advance(id: string, from: Answer["state"], change: (answer: Answer) => Answer): Promise<Answer> {
    return this.alone("answers", async (store) => {
      const stored: Answer | undefined = await done(store.get(id));
      if (!stored) throw new Error("the answer is no longer stored here");
      if (stored.state !== from) return stored;
      const changed = change(stored);
      await done(store.put(changed));
      return changed;
    });
  }

  /** Deletes what is kept of a study: the consent, the invitation, answers that were not sent, and reports that are the same
   * in all waves, with the answers that they are of. What was spent stays. */
  async leave(deployment: string, studyId: string): Promise<Settings> {
    await this.alone("answers", async (store, keptStore) => {
      for (const {report, ...kept} of await done<KeptReport[]>(keptStore.getAll())) {
        if (kept.deployment !== deployment || kept.studyId !== studyId || !report) continue;
        const left = `left ${hex(randomBytes(16))}`;
        await done(keptStore.delete(kept.id));
        await done(keptStore.add({...kept, id: left, value: left, isDrawn: false}));
      }
      const all: Answer[] = await done(store.getAll());
      for (const {prepared, submission, ...kept} of all) {
        if (kept.deployment !== deployment || !kept.roundId.startsWith(`${studyId}-w`)) continue;
        if (kept.state === "prepared") await done(store.delete(kept.id));
        else if (prepared || submission) await done(store.put(kept));
      }
    });
    const {consents} = (await this.settings(deployment)) ?? {};
    const {[studyId]: _, ...others} = consents ?? {};
    return this.set(deployment, {consents: others, invitation: undefined});
  }

  /** Discards an answer of which nothing has been sent but blinded messages, which were refused. */
  async discard(answer: Answer): Promise<void> {
    await this.alone("answers", async (store) => {
      const stored: Answer | undefined = await done(store.get(answer.id));
      const same = stored?.prepared && answer.prepared && equal(stored.prepared.request, answer.prepared.request);
      if (stored?.state === "prepared" && same) await done(store.delete(answer.id));
    });
  }

  async settings(deployment: string): Promise<Settings | undefined> {
    return done(this.read("settings").get(deployment));
  }

  /** Returns what is known of other versions or deployments that this one would replace: of its name, or at its address. */
  async replaced(deployment: string, fingerprint: string, gateway: string): Promise<Settings[]> {
    const all: Settings[] = await done(this.read("settings").getAll());
    const same = all.filter((one) => one.deployment === deployment || one.gateway === gateway);
    return same.filter((one) => one.fingerprint && one.fingerprint !== fingerprint);
  }

  /** Changes the settings of a deployment. */
  async set(deployment: string, changes: Partial<Settings>): Promise<Settings> {
    return this.alone("settings", async (store) => {
      const before: Settings = (await done(store.get(deployment))) ?? {deployment, fingerprint: ""};
      const after = {...before, ...changes, deployment};
      const others: Settings[] = changes.gateway ? await done(store.getAll()) : [];
      for (const one of others) {
        if (one.gateway === changes.gateway && one.deployment !== deployment) await done(store.put({...one, gateway: undefined}));
      }
      await done(store.put(after));
      return after;
    });
  }

  /** Forgets the bytes of old answers; that a round was answered, and with which budget, stays for ever. */
  private async forgetOld(before: number): Promise<void> {
    await this.alone("answers", async (store) => {
      const all: Answer[] = await done(store.getAll());
      for (const {prepared, submission, inclusion, ...kept} of all) {
        if (kept.at < before && (prepared || submission || inclusion)) await done(store.put(kept));
      }
    });
  }
}

export const keyName = (publicKey: Uint8Array): string => hex(publicKey);
