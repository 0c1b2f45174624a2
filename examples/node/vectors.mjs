// Checks protocol.mjs against the golden vectors: node vectors.mjs ../../tests/vectors/client.json
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";

import {Round, blanketThreshold, flipThreshold, message, signedByAll, ticket} from "./protocol.mjs";

const hex = (text) => Buffer.from(text, "hex");
const vectors = JSON.parse(readFileSync(process.argv[2], "utf8"));
for (const {epsilon, k, blanket, flip} of vectors.thresholds) {
  assert.equal(blanketThreshold(epsilon, k).toString(), blanket);
  if (k === 2) assert.equal(flipThreshold(epsilon).toString(), flip);
}
for (const one of vectors.cases) {
  const pinned = Object.fromEntries(Object.entries(one.identities).map(([name, key]) => [name, [hex(key)]]));
  const round = new Round(signedByAll("manifest", message("Signed").decode(hex(one.manifest)), pinned));
  assert.equal(round.hash.toString("hex"), one.manifest_hash);

  const places = {253: "accountant", 254: "release", 255: "analyzer"};
  round.manifest.hops.forEach((hop, index) => (places[index + 1] = hop.service));
  const ours = [...round.release, ...round.report, ...round.parameter, ...round.joint];
  for (const {lane, hop, info, plaintext, sealed} of one.layers) {
    const number = message("Commitment").root.lookupEnum("croupier.protocol.v1.Lane").values[lane];
    const layer = ours.find((other) => other.lane === number && other.hop === hop);
    assert.equal(layer.info.toString("hex"), info);
    const {kem} = round.suite;
    const recipientKey = await kem.deserializePrivateKey(hex(one.random[`key of ${places[hop]}`]));
    const enc = hex(sealed).subarray(0, 32);
    const opened = await round.suite.open({recipientKey, enc, info: layer.info}, hex(sealed).subarray(32));
    assert.equal(Buffer.from(opened).toString("hex"), plaintext);
  }

  const order = 2n ** 252n + 27742317777372353535851937790883648493n;
  const asNumber = (raw) => BigInt(`0x${Buffer.from(raw).reverse().toString("hex")}`);
  one.tickets.forEach((given, at) => {
    const scalar = (asNumber(hex(one.random[`blind ${at + 2}`])) % (order - 1n)) + 1n;
    const blind = Buffer.from(scalar.toString(16).padStart(64, "0"), "hex").reverse();
    const blinded = {blind, blinded: hex(given.blinded)};
    const made = ticket(hex(given.message), blinded, hex(given.evaluated), hex(given.key));
    assert.equal(made.toString("hex"), given.ticket);
    const wrong = hex(given.evaluated);
    wrong[40] ^= 1;
    assert.throws(() => ticket(hex(given.message), blinded, wrong, hex(given.key)));
  });

  const token = hex(one.random.token ?? "");
  for (const [field, purpose] of [["request", "tickets"], ["submission", "submit"]]) {
    const theirs = message("Submission").decode(hex(one[field]));
    const made = round.sign(purpose, theirs.envelope, hex(one.random["client key"]), token);
    assert.deepEqual(Buffer.from(message("Submission").encode(made).finish()), hex(one[field]));
  }
  console.log(`${one.name}: ok`);
}
