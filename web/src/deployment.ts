// One version of the deployment file: which services there are, and which keys are believed in which round. It is read
// from the statement that the services sign (croupier/protocol/deployment.py); which version follows another one, versions.ts says.
import {type Bytes, context, fromHex, hex, sha256, utf8} from "./bytes.js";
import {check} from "./refusals.js";

const CLOCKS_DIFFER_S = 60;
const ROLES = ["shuffler", "accountant", "analyzer"] as const;
export const NAME = /^[a-z][a-z0-9-]{0,62}$/;
export const KEY = /^[0-9a-f]{64}$/;

interface Retired {
  identity: string;
  /** Unix seconds; null: believed in every round. */
  validUntil: number | null;
  compromised: boolean;
}

export interface Service {
  name: string;
  role: (typeof ROLES)[number];
  /** The active identity, with which it signs, then the pending one. */
  identities: string[];
  retired: Retired[];
}

export interface Limit {
  total_epsilon: number;
  total_delta: number;
  max_rounds: number;
  fixed_terms: boolean;
}

export interface Deployment {
  name: string;
  version: number;
  /** The fingerprint of the version before, in hexadecimal. */
  previous: string | undefined;
  services: Service[];
  privacyLimit: Limit | null;
  /** What the services sign, and the hash by which people and the next version name this one, in hexadecimal. */
  statement: Bytes;
  fingerprint: string;
}

type Fields = Record<string, unknown>;

/** Returns the fields of a part of the file; a field that is not known here could change what the others mean. */
export function fieldsOf(what: string, value: unknown, known: string[]): Fields {
  check(typeof value === "object" && value !== null && !Array.isArray(value), `${what} cannot be read`);
  const unknown = Object.keys(value).filter((name) => !known.includes(name));
  check(unknown.length === 0, `${what} has fields that this page does not know: ${unknown.join(", ")}`);
  return value as Fields;
}

export function text(what: string, value: unknown, form: RegExp): string {
  check(typeof value === "string" && form.test(value), `${what} cannot be read`);
  return value;
}

function listOf(what: string, value: unknown): unknown[] {
  check(value === undefined || Array.isArray(value), `${what} cannot be read`);
  return value ?? [];
}

/** Returns the number, or the default of a number that is left out. */
function number(what: string, value: unknown, low: number, high: number, otherwise?: number): number {
  const given = value ?? otherwise;
  check(typeof given === "number" && given >= low && given <= high, `${what} is out of range`);
  return given;
}

function flag(what: string, value: unknown): boolean {
  check(value === undefined || typeof value === "boolean", `${what} cannot be read`);
  return value ?? false;
}

function readRetired(value: unknown): Retired {
  const fields = fieldsOf("a retired identity", value, ["identity", "valid_until", "compromised"]);
  const until = fields.valid_until;
  // Python writes up to six digits of a second, and browsers need to read no more than three.
  const time = until === undefined ? null : Date.parse(String(until).replace(/(\.\d{3})\d+/, "$1")) / 1000;
  check(time === null || Number.isFinite(time), "the time of a retired identity cannot be read");
  const compromised = flag("a retired identity", fields.compromised);
  return {identity: text("a retired identity", fields.identity, KEY), validUntil: time, compromised};
}

function readService(value: unknown): Service {
  const known = ["name", "role", "address", "public_address", "identity", "tls_certificate", "pending_identity"];
  const more = ["pending_tls_certificate", "retired_identities", "organisation", "administrator"];
  const {name, role, ...fields} = fieldsOf("a service of the deployment", value, [...known, ...more]);
  const retired = listOf("a service of the deployment", fields.retired_identities).map(readRetired);
  const live = [fields.identity, ...(fields.pending_identity === undefined ? [] : [fields.pending_identity])];
  const identities = live.map((one) => text("an identity of the deployment", one, KEY));
  const all = [...identities, ...retired.map((one) => one.identity)];
  check(new Set(all).size === all.length, "an identity of the deployment is listed twice");
  const knownRole = ROLES.find((one) => one === role);
  check(knownRole !== undefined, "a service of the deployment has a role that this page does not know");
  return {name: text("the name of a service", name, NAME), role: knownRole, identities, retired};
}

function readLimit(value: unknown): Limit | null {
  if (value === undefined) return null;
  const known = ["total_epsilon", "total_delta", "max_rounds", "fixed_terms"];
  const fields = fieldsOf("the privacy limit", value, known);
  return {
    total_epsilon: number("the privacy limit", fields.total_epsilon, Number.MIN_VALUE, Number.MAX_VALUE),
    total_delta: number("the privacy limit", fields.total_delta, Number.MIN_VALUE, 0.1),
    max_rounds: number("the privacy limit", fields.max_rounds, 0, 2 ** 32 - 1, 0),
    fixed_terms: flag("the privacy limit", fields.fixed_terms),
  };
}

/** Returns the version that a statement is; whose signatures it has is not checked here. */
export function readStatement(written: string): Deployment {
  let read: unknown;
  try {
    read = JSON.parse(written);
  } catch {
    check(false, "the deployment's document cannot be read");
  }
  const known = ["name", "version", "previous", "operator_tls_certificate", "services", "privacy_limit", "gateway"];
  const more = ["approvals", "minimum_version", "operator", "participant_pages"];
  const fields = fieldsOf("the deployment's document", read, [...known, ...more]);
  const services = listOf("the deployment's document", fields.services).map(readService);
  const count = (role: string) => services.filter((one) => one.role === role).length;
  check(
    count("shuffler") > 0 && count("accountant") === 1 && count("analyzer") === 1,
    "the deployment needs shufflers, one accountant and one analyzer",
  );
  const names = services.map((one) => one.name);
  check(new Set([...names, "operator"]).size === names.length + 1, "two services of the deployment have one name");
  const version = number("the version of the deployment", fields.version, 1, 2 ** 31 - 1, 1);
  check(Number.isInteger(version), "the version of the deployment is out of range");
  for (const page of listOf("the deployment's document", fields.participant_pages)) text("the hash of a page", page, KEY);
  if (fields.operator !== undefined) fieldsOf("the operator", fields.operator, ["organisation", "administrator", "host"]);
  const statement = utf8(written);
  return {
    name: text("the name of the deployment", fields.name, NAME),
    version,
    previous: fields.previous === undefined ? undefined : text("the version before", fields.previous, KEY),
    services,
    privacyLimit: readLimit(fields.privacy_limit),
    statement,
    fingerprint: hex(sha256(context("deployment"), statement)),
  };
}

/** Returns the services in the order of the chain: the shufflers, the accountant, the analyzer. */
export function chain(deployment: Deployment): Service[] {
  return ROLES.flatMap((role) => deployment.services.filter((one) => one.role === role));
}

/** Returns the keys of a service that are believed in a round of this time; undefined: the time is not known. */
export function believed(service: Service, time: number | undefined): Bytes[] {
  const still = ({validUntil: until, compromised}: Retired) =>
    !compromised && (until === null || (time !== undefined && time <= until + CLOCKS_DIFFER_S));
  return [...service.identities, ...service.retired.filter(still).map((one) => one.identity)].map(fromHex);
}
