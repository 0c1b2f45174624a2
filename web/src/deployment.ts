// The deployment: which services there are, and which keys are believed in which round. Its document is JSON, made by
// the gateway from deployment.toml; its fingerprint is the SHA-256 of these bytes.
import {type Bytes, fromHex, hex, sha256} from "./bytes.js";
import {check} from "./refusals.js";

const CLOCKS_DIFFER_S = 60;
const ROLES = ["shuffler", "accountant", "analyzer"] as const;

interface Retired {
  identity: string;
  valid_until: number | null;
  compromised: boolean;
}

export interface Service {
  name: string;
  role: (typeof ROLES)[number];
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
  services: Service[];
  privacyLimit: Limit | null;
  fingerprint: string;
}

/** Returns the deployment that a document states. */
export function readDeployment(document: Uint8Array): Deployment {
  let read: {format?: unknown; name?: unknown; services?: unknown; privacy_limit?: unknown};
  try {
    read = JSON.parse(new TextDecoder("utf-8", {fatal: true}).decode(document));
  } catch {
    read = {};
  }
  const {format, name, services, privacy_limit: limit} = read;
  check(format === 1 && typeof name === "string" && Array.isArray(services), "the deployment's document cannot be read");
  for (const {name: service, role, identities, retired} of services as Service[]) {
    const keys = [...identities, ...retired.map((one) => one.identity)];
    check(typeof service === "string" && ROLES.includes(role), "a service of the deployment cannot be read");
    check(keys.every((key) => fromHex(key).length === 32), "an identity of the deployment is not a key");
  }
  const chain = services as Service[];
  const count = (role: string) => chain.filter((one) => one.role === role).length;
  check(
    count("shuffler") > 0 && count("accountant") === 1 && count("analyzer") === 1,
    "the deployment needs shufflers, one accountant and one analyzer",
  );
  check(new Set(chain.map((one) => one.name)).size === chain.length, "two services of the deployment have one name");
  return {name, services: chain, privacyLimit: (limit as Limit | null) ?? null, fingerprint: hex(sha256(document))};
}

/** Returns the services in the order of the chain: the shufflers, the accountant, the analyzer. */
export function chain(deployment: Deployment): Service[] {
  return ROLES.flatMap((role) => deployment.services.filter((one) => one.role === role));
}

/** Returns the keys of a service that are believed in a round of this time; undefined: the time is not known. */
export function believed(service: Service, time: number | undefined): Bytes[] {
  const still = ({valid_until: until, compromised}: Retired) =>
    !compromised && (until === null || (time !== undefined && time <= until + CLOCKS_DIFFER_S));
  return [...service.identities, ...service.retired.filter(still).map((one) => one.identity)].map(fromHex);
}
