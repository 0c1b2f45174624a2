// What this browser keeps, in IndexedDB: answers before they are sent, what they have spent, and what was pinned.
//
// An answer is stored, and counted against the person's own limit, in one transaction, before anything of it leaves the
// memory of the page. From then on the same bytes are sent, by whichever tab goes on with them.
import {type Bytes, equal, hex, randomBytes} from "./bytes.js";
import {admit, checkLimit, checkSeries, LargerBefore, personOf, spent, whose} from "./counting.js";
import type {Prepared} from "./round.js";
import type {Series} from "./survey.js";

const KEPT_DAYS = 30;

/** One answer to one round under one key. What was answered is not in it. */
export interface Answer {
  id: string;
  deployment: string;
  surveyId: string;
  /** 0 of a survey that is asked once. */
  wave: number;
  roundId: string;
  clientKey: string;
  /** Of a stored answer, the person who has given it: see counting.ts. */
  person?: string;
  title: string;
  /** What invitations to the survey are bound to, in hexadecimal: `invitationHash`. */
  invited: string;
  /** The SignedRound, serialised. */
  round: Bytes;
  epsilon: number;
  state: "prepared" | "sealed" | "accepted";
  at: number;
  prepared?: Prepared & {privateKey: Bytes};
  submission?: Bytes;
  inclusion?: [Bytes, Bytes][];
  /** The series of a permanent survey that the round is of: what it has spent is with the reports that are kept. */
  series?: Series;
}

/** The report of one answer of a person to a permanent survey's question: the same in all waves. */
export interface KeptReport {
  id: string;
  deployment: string;
  surveyId: string;
  /** Of the series. */
  name: string;
  clientKey: string;
  person: string;
  /** The answer; of a survey that the person has left, random digits. */
  value: number | string;
  epsilon: number;
  /** Missing in a survey that the person has left. */
  report?: Bytes;
  /** Whether the answer was drawn, for a question that the person leaves out. */
  isDrawn: boolean;
}

/** A person's consent to a version of a survey with a schedule: it is for all waves of this version. */
export interface Consent {
  surveyId: string;
  person: string;
  /** The bytes of the version. */
  survey: Bytes;
  /** Milliseconds. */
  at: number;
}

/** An invitation that was opened here, and what it was made for. */
export interface Invited {
  secret: Bytes;
  /** The round that its link names. */
  round: string;
  /** What its key follows from, in hexadecimal, once that is known: `invitationHash`. */
  of?: string;
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
  /** To surveys, the newest last. */
  invitations?: Invited[];
  consents?: Consent[];
  lifetimeEpsilon?: number;
}

export const answerId = (deployment: string, roundId: string, clientKey: string): string =>
  JSON.stringify([deployment, roundId, clientKey]);

function done<Value>(request: IDBRequest<Value>): Promise<Value> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export class Outbox {
  private constructor(private readonly db: IDBDatabase) {}

  static async open(name = "croupier"): Promise<Outbox> {
    const request = indexedDB.open(name, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("answers", {keyPath: "id"});
      request.result.createObjectStore("settings", {keyPath: "deployment"});
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

  /** Returns the reports that are kept for permanent surveys of a deployment, and what left ones have spent. */
  async kept(deployment: string): Promise<KeptReport[]> {
    const all: KeptReport[] = await done(this.read("kept").getAll());
    return all.filter((one) => one.deployment === deployment);
  }

  /** Returns what is stored of a deployment, in a transaction. */
  private async stored(deployment: string, store: IDBObjectStore, keptStore: IDBObjectStore): Promise<[Answer[], KeptReport[]]> {
    const ofDeployment = (one: {deployment: string}) => one.deployment === deployment;
    const [answers, kept]: [Answer[], KeptReport[]] = [await done(store.getAll()), await done(keptStore.getAll())];
    return [answers.filter(ofDeployment), kept.filter(ofDeployment)];
  }

  /**
   * Returns the report of an answer that is sent in every wave of a series. It is drawn and stored in one transaction when
   * the answer is given for the first time, and every answer to the series has the budget of the first one.
   *
   * own: the person's own limit, and who they have said that they are (`whose`).
   */
  async keepReport(
    wave: Pick<Answer, "surveyId" | "wave" | "roundId" | "deployment" | "clientKey"> & {series: Series},
    wanted: {value: number; epsilon: number; isDrawn: boolean},
    draw: (value: number, epsilon: number) => Bytes,
    own: {lifetimeEpsilon?: number; person?: string},
  ): Promise<KeptReport & {report: Bytes}> {
    const {deployment, surveyId, clientKey, roundId, series} = wave;
    return this.alone("answers", async (store, keptStore) => {
      const [answers, kept] = await this.stored(deployment, store, keptStore);
      const person = whose(wave, clientKey, answers, kept, own.person);
      checkSeries(roundId, series, person, answers);
      const mine = kept.filter((one) => one.name === series.name && personOf(one) === person);
      const found = mine.find((one) => (wanted.isDrawn && one.isDrawn) || one.value === wanted.value);
      if (found?.report) return {...found, report: found.report};
      const epsilon = mine[0]?.epsilon ?? wanted.epsilon;
      if (epsilon > wanted.epsilon) throw new LargerBefore(epsilon);
      const id = JSON.stringify([deployment, person, series.name, wanted.value]);
      const whoseReport = {id, deployment, surveyId, name: series.name, clientKey, person};
      const fresh = {...whoseReport, ...wanted, epsilon, report: draw(wanted.value, epsilon)};
      checkLimit(spent(answers, kept), spent(answers, [...kept, fresh]), own.lifetimeEpsilon);
      await done(keptStore.add(fresh));
      return fresh;
    });
  }

  /**
   * Stores answers and counts them, or returns those that this person has stored for the same wave before (`admit`).
   *
   * All are of one wave of one survey. own: as for `keepReport`.
   */
  async begin(fresh: Answer[], own: {lifetimeEpsilon?: number; person?: string}): Promise<Answer[]> {
    return this.alone("answers", async (store, keptStore) => {
      const [answers, kept] = await this.stored(fresh[0]!.deployment, store, keptStore);
      const admitted = admit(fresh, answers, kept, own.lifetimeEpsilon, own.person);
      for (const one of admitted) if (!answers.includes(one)) await done(store.add(one));
      void navigator.storage?.persist?.().catch(() => false); // asks the browser not to delete it when space is short
      return admitted;
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

  /** Deletes what is kept of a person's survey with a schedule: the consent, the invitation, answers that were not sent, and reports that are
   * the same in all waves, with the answers that they are of. What was sent and spent stays.
   *
   * invited: what invitations to it are bound to, in hexadecimal. */
  async leave(deployment: string, surveyId: string, invited: string, person: string): Promise<Settings> {
    await this.alone("answers", async (store, keptStore) => {
      const [answers, reports] = await this.stored(deployment, store, keptStore);
      for (const {report, ...kept} of reports) {
        if (kept.surveyId !== surveyId || personOf(kept) !== person || !report) continue;
        const left = `left ${hex(randomBytes(16))}`;
        await done(keptStore.delete(kept.id));
        await done(keptStore.add({...kept, id: left, value: left, isDrawn: false}));
      }
      for (const {prepared, submission, ...kept} of answers) {
        if (kept.surveyId !== surveyId || personOf(kept) !== person) continue;
        if (kept.state === "prepared") await done(store.delete(kept.id));
        else if (prepared || submission) await done(store.put(kept));
      }
    });
    return this.change(deployment, (before) => ({
      consents: before.consents?.filter((one) => one.surveyId !== surveyId || one.person !== person),
      invitations: before.invitations?.filter((one) => one.of !== invited),
    }));
  }

  /** Stores a person's consent to a version of a survey, in place of the one to an earlier version. */
  async consent(deployment: string, fresh: Consent): Promise<Settings> {
    const isOther = (one: Consent) => one.surveyId !== fresh.surveyId || one.person !== fresh.person;
    return this.change(deployment, ({consents = []}) => {
      const isKnown = consents.some((one) => !isOther(one) && equal(one.survey, fresh.survey));
      return isKnown ? {} : {consents: [...consents.filter(isOther), fresh]};
    });
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

  /** Changes the settings of a deployment to these. */
  async set(deployment: string, changes: Partial<Settings>): Promise<Settings> {
    return this.change(deployment, () => changes);
  }

  /** Changes the settings of a deployment in one transaction. */
  async change(deployment: string, changed: (before: Settings) => Partial<Settings>): Promise<Settings> {
    return this.alone("settings", async (store) => {
      const before: Settings = (await done(store.get(deployment))) ?? {deployment, fingerprint: ""};
      const changes = changed(before);
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
