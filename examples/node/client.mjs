// One person's answer to a question about a bit, from JavaScript:
//   node client.mjs deployment.toml (--token-file FILE | --key-file FILE)
//                   [--value-file FILE] [--round ROUND] [--directory DIRECTORY] [--gateway URL]
// The value is in a file or in CROUPIER_VALUE, a token in a file or in CROUPIER_TOKEN, the most to spend in
// CROUPIER_EPSILON: other users of the machine can read a command line. The file "-" is standard input. The newest open
// round is answered if none is named. Through a gateway an enrolled key is needed: it could use a token itself. The
// sealed answer is stored in DIRECTORY (here, if not given) before it is sent; who comes second, at the same time too,
// sends the same bytes. What rounds cost together is not counted here; a real client does that.
import {randomBytes} from "node:crypto";
import {closeSync, existsSync, fsyncSync, linkSync, openSync, readFileSync, unlinkSync, writeSync} from "node:fs";
import {join} from "node:path";
import {parseArgs} from "node:util";

import {parse} from "smol-toml";

import {overGrpc, overHttps} from "./calls.mjs";
import {Answer, Round, message, randomizeBit, signedByAll} from "./protocol.mjs";

const options = ["token-file", "key-file", "value-file", "round", "directory", "gateway"];
const named = options.map((name) => [name, {type: "string", default: ""}]);
const {positionals, values} = parseArgs({allowPositionals: true, options: Object.fromEntries(named)});
if (positionals.length !== 1) throw new Error("give deployment.toml alone; value, budget and token are not arguments");
const [file] = positionals;
const {round: roundId, gateway} = values;
const hex = (text) => Buffer.from(text, "hex");
const {CROUPIER_VALUE = "", CROUPIER_TOKEN = "", CROUPIER_EPSILON = ""} = process.env;
const secret = (from, given) => (from ? readFileSync(from === "-" ? 0 : from, "utf8").trim() : given);
const value = secret(values["value-file"], CROUPIER_VALUE);
const token = hex(secret(values["token-file"], CROUPIER_TOKEN));
const key = hex(secret(values["key-file"], ""));
if (![token, key].every((one) => [0, 32].includes(one.length))) throw new Error("key and token have 64 hexadecimal digits");
if (!token.length === !key.length) throw new Error("give a token or a key");
if (gateway && token.length) throw new Error("a gateway could use a one-use token itself; give an enrolled key");
const call = gateway ? overHttps(gateway) : await overGrpc();
const deployment = parse(readFileSync(file, "utf8"));
const ofRole = (role) => deployment.services.filter((one) => one.role === role);
const chain = [...ofRole("shuffler"), ...ofRole("accountant"), ...ofRole("analyzer")];

/** Returns every service's identities that are believed in a round with this manifest. */
function pinnedFor({hops, accountant, analyzer}) {
  const times = [...hops, accountant, analyzer].map((keys) => Number(keys.created_unix_s ?? 0));
  const time = times.every(Boolean) ? Math.max(...times) : Infinity;
  const believed = (one) => !one.compromised && (!one.valid_until || time <= one.valid_until.getTime() / 1000 + 60);
  const retired = (one) => (one.retired_identities ?? []).filter(believed).map((each) => each.identity ?? each);
  const identities = (one) => [one.identity, one.pending_identity, ...retired(one)].filter(Boolean);
  return Object.fromEntries(chain.map((one) => [one.name, identities(one).map(hex)]));
}

/** Refuses a manifest that is not this deployment's, or that this client does not understand. */
function check({manifest}) {
  const services = [...manifest.hops, manifest.accountant, manifest.analyzer].map((keys) => keys.service);
  const limits = ({privacy_limit: one}) =>
    one && [one.total_epsilon, one.total_delta, one.max_rounds ?? 0, one.fixed_terms ?? false].join();
  if (
    manifest.protocol_version !== 1 ||
    manifest.deployment !== deployment.name ||
    (roundId && manifest.round_id !== roundId) ||
    services.join() !== chain.map((one) => one.name).join() ||
    (limits(manifest) || undefined) !== limits(deployment)
  ) {
    throw new Error("the manifest is about another deployment or round");
  }
  if (manifest.survey?.wave) throw new Error("this client keeps no reports and counts no waves, so it answers no study");
  if (manifest.budget_grid.some((one) => one.delta !== 0)) throw new Error("a bit has no local delta; a budget has one");
  if (manifest.question.mechanism !== "rr") throw new Error(`this client does not know ${manifest.question.mechanism}`);
}

function codeOf(response) {
  return message("SubmitResponse").root.lookupEnum("croupier.protocol.v1.SubmissionCode").valuesById[response.codes[0]];
}

/** Stores a sealed answer durably, unless there is one: a link, unlike a renaming, replaces nothing. */
function keepFirst(sealed) {
  const fresh = `${kept}.${randomBytes(8).toString("hex")}`;
  const opened = openSync(fresh, "wx", 0o600);
  writeSync(opened, sealed);
  fsyncSync(opened);
  closeSync(opened);
  try {
    linkSync(fresh, kept);
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
  } finally {
    unlinkSync(fresh);
  }
  const folder = openSync(values.directory || ".", "r"); // the file's name is to outlast a power cut, too
  fsyncSync(folder);
  closeSync(folder);
}

const [first, accountant] = [chain[0], ofRole("accountant")[0]];
const shown = await call(first, "Shuffler/GetRound", {round_id: roundId});
const {manifest} = new Round(shown.manifest.payload);
const round = new Round(signedByAll("manifest", shown.manifest, pinnedFor(manifest)));
check(round);
const id = round.manifest.round_id;
// An operator chooses the id: "../" may be in it.
const kept = join(values.directory, `${encodeURIComponent(id)}.sealed`);

if (!existsSync(kept)) {
  const most = Number(CROUPIER_EPSILON);
  const budget = round.manifest.budget_grid.filter((one) => one.epsilon <= most).at(-1);
  if (!budget || !["0", "1"].includes(value)) throw new Error("no budget is small enough, or the value is not 0 or 1");
  const report = randomizeBit(Number(value), budget.epsilon);
  const answer = await Answer.make(round, report, budget, {token, key});
  const asked = {round_id: id, requests: [answer.request]};
  const given = await call(accountant, "Accountant/GetTickets", asked);
  // Another process may have sealed an answer meanwhile. Two randomizations of a value must never both be sent.
  if (given.codes[0] === 1) {
    const submission = await answer.submission([given.report_evaluations, given.parameter_evaluations]);
    keepFirst(message("Submission").encode(submission).finish());
  } else if (!existsSync(kept)) {
    throw new Error(`no tickets: ${codeOf(given)}`);
  }
}
const submissions = [message("Submission").decode(readFileSync(kept))];
const done = await call(first, "Shuffler/Submit", {round_id: id, submissions});
console.log(JSON.stringify({round_id: id, code: codeOf(done)}));
