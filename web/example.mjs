// One answer to the newest open question about a bit, from another program: node example.mjs GATEWAY FILE EPSILON
// The value and the private key are in the environment: other users of the machine can read a command line. FILE.STATE
// keeps the answer in each of its states before it is sent; a second start sends the same bytes. The first version of the
// deployment that is seen is believed: a real program names the fingerprint that it has from elsewhere, or follows
// versions from it (checkAgreed). It also counts what rounds cost together (admit).
import {randomUUID} from "node:crypto";
import {closeSync, existsSync, fsyncSync, linkSync, openSync, readFileSync, rmSync, writeSync} from "node:fs";
import {deserialize, serialize} from "node:v8";

import {fetchRound, fromHex, Gateway, goOn, prepareAnswer, readNewest} from "croupier-client";

const [url = "", file = "", epsilon = ""] = process.argv.slice(2);
const {CROUPIER_VALUE: value = "", CROUPIER_KEY: key = ""} = process.env;

/** Stores an answer unless this state is stored, and returns the stored one: a link, unlike a renaming, replaces nothing.
 * So two programs that start at once send the same bytes. */
function keepFirst(answer) {
  const [fresh, kept] = [`${file}.${randomUUID()}`, `${file}.${answer.state}`];
  const opened = openSync(fresh, "wx", 0o600);
  writeSync(opened, serialize(answer));
  fsyncSync(opened);
  closeSync(opened);
  try {
    linkSync(fresh, kept);
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
  } finally {
    rmSync(fresh);
  }
  return deserialize(readFileSync(kept));
}

/** @type {import("croupier-client").Kept} */
const kept = {
  async advance(_, from, change) {
    answer = keepFirst(change(answer));
    if (from === "prepared") rmSync(`${file}.prepared`, {force: true}); // the private key is in it
    return answer;
  },
  async discard() {
    rmSync(`${file}.prepared`, {force: true}); // only blinded messages were sent of it
  },
};

const gateway = new Gateway(url);
const {deployment} = readNewest(await gateway.deployment());
const state = ["accepted", "sealed", "prepared"].find((name) => existsSync(`${file}.${name}`));
let answer = state && deserialize(readFileSync(`${file}.${state}`));
if (!answer) {
  const shown = await fetchRound(gateway, deployment);
  answer = keepFirst(await prepareAnswer(shown, shown.terms.question.name, Number(value), Number(epsilon), fromHex(key)));
}
const done = await goOn(gateway, kept, deployment, answer, () => undefined);
console.log(JSON.stringify({round_id: done.roundId, state: done.state}));
