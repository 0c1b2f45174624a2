// One answer to the newest open question about a bit, from another program: node example.mjs GATEWAY FILE EPSILON
// The value and the private key are in the environment: other users of the machine can read a command line. FILE keeps
// the answer before it is sent; a second start sends the same bytes. The first version of the deployment that is seen is
// believed: a real program names the fingerprint that it has from elsewhere, or follows versions from it (checkAgreed).
import {closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, unlinkSync, writeSync} from "node:fs";
import {deserialize, serialize} from "node:v8";

import {fetchRound, fromHex, Gateway, goOn, prepareAnswer, readNewest} from "croupier-client";

const [url = "", file = "", epsilon = ""] = process.argv.slice(2);
const {CROUPIER_VALUE: value = "", CROUPIER_KEY: key = ""} = process.env;

/** @type {import("croupier-client").Kept & {put(answer: import("croupier-client").Answer): void}} */
const kept = {
  put(answer) {
    const fresh = openSync(`${file}.new`, "w", 0o600);
    writeSync(fresh, serialize(answer));
    fsyncSync(fresh);
    closeSync(fresh);
    renameSync(`${file}.new`, file);
  },
  async advance(_, from, change) {
    const stored = deserialize(readFileSync(file));
    const answer = stored.state === from ? change(stored) : stored;
    this.put(answer);
    return answer;
  },
  async discard() {
    unlinkSync(file); // only blinded messages were sent of it
  },
};

const gateway = new Gateway(url);
const {deployment} = readNewest(await gateway.deployment());
if (!existsSync(file)) {
  const shown = await fetchRound(gateway, deployment);
  kept.put(await prepareAnswer(shown, shown.terms.question.name, Number(value), Number(epsilon), fromHex(key)));
}
const {roundId, state} = await goOn(gateway, kept, deployment, deserialize(readFileSync(file)), () => undefined);
console.log(JSON.stringify({round_id: roundId, state}));
