// Versions of the deployment file, as the gateway shows them: each names the one before by its fingerprint, and is
// followed only if every service of the one before has signed it (croupier/protocol/versions.py).
import {concat, context, fromHex, utf8} from "./bytes.js";
import {chain, type Deployment, fieldsOf, KEY, NAME, readStatement, type Service, text} from "./deployment.js";
import {isBy} from "./documents.js";
import {check} from "./refusals.js";

/** A version with the identities of each service whose signatures on it are valid. */
export interface SignedVersion {
  deployment: Deployment;
  signers: Map<string, string[]>;
}

interface Written {
  statement: unknown;
  signatures: unknown;
}

function parsed(document: Uint8Array): {format?: unknown; versions?: unknown} & Partial<Written> {
  try {
    const read: unknown = JSON.parse(new TextDecoder("utf-8", {fatal: true}).decode(document));
    if (typeof read === "object" && read !== null) return read;
  } catch {
    // as for anything else that is not a document
  }
  check(false, "the deployment's document cannot be read");
}

/** Returns a version, after checking that every service that it names has signed it. */
export function readSigned({statement, signatures}: Partial<Written>): SignedVersion {
  check(typeof statement === "string" && Array.isArray(signatures), "the deployment's document cannot be read");
  const deployment = readStatement(statement);
  const signers = new Map(deployment.services.map((one): [string, string[]] => [one.name, []]));
  const message = concat(context("deployment"), utf8(statement));
  for (const one of signatures) {
    const {signer, identity, signature} = fieldsOf("a signature", one, ["signer", "identity", "signature"]);
    const [name, key] = [text("a signature", signer, NAME), text("a signature", identity, KEY)];
    const bytes = fromHex(text("a signature", signature, /^[0-9a-f]{128}$/));
    if (isBy(fromHex(key), bytes, message)) signers.get(name)?.push(key);
  }
  const missing = deployment.services.filter((one) => !signers.get(one.name)!.includes(one.identities[0]!));
  check(missing.length === 0, `the deployment is not signed by ${missing.map((one) => one.name).join(", ")}`);
  return {deployment, signers};
}

/** Returns the newest version, as `deployment.json` states it. */
export function readNewest(document: Uint8Array): SignedVersion {
  const read = parsed(document);
  check(read.format === 2, "the deployment's document is of another release than this page");
  return readSigned(read);
}

/** Returns all versions that `versions.json` states, oldest first. */
export function readVersions(document: Uint8Array): SignedVersion[] {
  const {format, versions} = parsed(document);
  check(format === 2 && Array.isArray(versions), "the versions of the deployment cannot be read");
  return (versions as Partial<Written>[]).map(readSigned);
}

function checkIdentities(entry: Service, before: Service): void {
  const active = before.identities[0]!;
  const known = [...entry.identities, ...entry.retired.map((one) => one.identity)];
  check(known.includes(active), `an identity of ${entry.name} is gone`);
  for (const one of before.retired) {
    const kept = entry.retired.find(({identity}) => identity === one.identity);
    const same = kept?.validUntil === one.validUntil && (kept.compromised || !one.compromised);
    check(same, `a retired identity of ${entry.name} is gone, or is believed for longer`);
  }
}

/** Checks that a version continues the one before, and that all services of that one have agreed to it. */
function checkFollows({deployment: newer, signers}: SignedVersion, older: Deployment): void {
  const continues = newer.name === older.name && newer.version === older.version + 1 && newer.previous === older.fingerprint;
  check(continues, `version ${newer.version} of the deployment does not continue version ${older.version}`);
  const names = (one: Deployment) => chain(one).map((service) => service.name).join("\n");
  check(names(newer) === names(older), "the deployment has other services, or another order of them");
  for (const before of older.services) {
    checkIdentities(newer.services.find((one) => one.name === before.name)!, before);
    const agrees = signers.get(before.name)!.some((key) => before.identities.includes(key));
    check(agrees, `version ${newer.version} of the deployment lacks the agreement of ${before.name}`);
  }
}

/** Returns the newest of these versions, oldest first; Distrust if one does not follow the one before. */
export function follow(versions: SignedVersion[]): Deployment {
  versions.slice(1).forEach((newer, at) => checkFollows(newer, versions[at]!.deployment));
  const newest = versions.at(-1);
  check(newest !== undefined, "there is no version of the deployment");
  return newest.deployment;
}

/** Checks that the services of the version with this fingerprint have agreed to all that lead to the newest one. */
export function checkAgreed(versions: SignedVersion[], fingerprint: string, newest: Deployment): void {
  const place = (wanted: string) => versions.findIndex(({deployment}) => deployment.fingerprint === wanted);
  const [first, last] = [place(fingerprint), place(newest.fingerprint)];
  check(first >= 0 && last >= first, "the version that is known here is not among those that lead to the newest one");
  follow(versions.slice(first, last + 1));
}
