// Checks the client inside the participant's page against the golden vectors: node vectors.mjs PAGE VECTORS
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";

const [page, file] = process.argv.slice(2);
const [, script] = /<script type="module">([^]*?)<\/script>/.exec(readFileSync(page, "utf8"));
const client = await import(`data:text/javascript;base64,${Buffer.from(script).toString("base64")}`);
const {answering, bytes, counting, deployments, manifests, messages, projective, randomizers, results, rounds, surveys, texts, versions} = client;
const {fromHex, hex, concat} = bytes;
const vectors = JSON.parse(readFileSync(file, "utf8"));
const versionOf = (fields) => deployments.readStatement(JSON.stringify(fields));
const read = (schema, text) => client.fromBinary(schema, fromHex(text));

for (const {epsilon, k, blanket, flip} of [...vectors.thresholds, ...vectors.more_thresholds]) {
  assert.equal(String(randomizers.blanketThreshold(epsilon, k)), blanket);
  if (k === 2) assert.equal(String(randomizers.flipThreshold(epsilon)), flip);
}

/** Returns draws that are given one after the other. */
const draws = (...values) => () => BigInt(values.shift());
const bit = {kind: "rr", choices: 2};
const mood = {kind: "krr", choices: 3, labels: ["a", "b", "c"]};
const range = {kind: "onebit", choices: 0, low: -0.1, high: 0.3};
const levels = {kind: "levels", choices: 0, low: 0, high: 8, k: 5};
const symptoms = {kind: "choices", choices: 32, labels: []};
const flip = randomizers.flipThreshold(1);
const blanket = randomizers.blanketThreshold(1, 3);
assert.equal(randomizers.randomize(bit, 1, 1, draws(flip - 1n)), 0);
assert.equal(randomizers.randomize(bit, 1, 1, draws(flip)), 1);
assert.equal(randomizers.randomize(mood, 2, 1, draws(blanket)), 2);
assert.equal(randomizers.randomize(mood, 2, 1, draws(blanket - 1n, 2n ** 64n - 1n, 4n)), 1); // the last draw is drawn again
for (const {value, low, high, numerator, denominator} of vectors.positions) {
  const {over, under} = randomizers.positionOf(value, low, high);
  assert.equal(over * BigInt(denominator), under * BigInt(numerator));
}
const never = 2n ** 64n - 1n; // does not flip
assert.equal(randomizers.randomize(range, 0.3, 1, draws(never, never)), 1);
assert.equal(randomizers.randomize(range, -0.1, 1, draws(0n, never)), 0);
assert.equal(randomizers.randomize(levels, 3, 1, draws(2n ** 63n - 1n, never)), 2); // half way from level 1 to level 2
assert.equal(randomizers.randomize(levels, 3, 1, draws(2n ** 63n, never)), 1);
assert.equal(randomizers.randomize(levels, 8, 1, draws(0n, never)), 4);
assert.equal(randomizers.randomize(levels, 8, 1, draws(0n, randomizers.blanketThreshold(1, 5) - 1n, 7n)), 2);
assert.equal(randomizers.randomize(symptoms, 2 ** 31, 1, draws(31n, never)), 63); // the last option, which is chosen
assert.equal(randomizers.randomize(symptoms, 2 ** 31, 1, draws(30n, never)), 60);
assert.equal(randomizers.randomize(symptoms, 2 ** 32 - 1, 1, draws(0n, flip - 1n)), 0);
const chances = randomizers.probabilities(levels, 3, 1);
assert.ok(Math.abs(chances.reduce((sum, one) => sum + one) - 1) < 1e-12 && chances[1] === chances[2] && chances[0] < chances[1]);
for (const [asked, value] of [[levels, 8.1], [bit, 2], [symptoms, 2 ** 32], [symptoms, -1], [mood, 3], [mood, 0.5], [range, 0.4], [range, NaN]]) {
  assert.throws(() => randomizers.randomize(asked, value, 1), {name: "Distrust"});
}
for (const {k, q, category, epsilon, drawn, report} of vectors.points) {
  const pgr = {kind: "pgr", choices: k, labels: [], space: projective.spaceFor(k, q)};
  assert.equal(randomizers.randomize(pgr, category, epsilon, draws(...drawn)), report);
  const [{points, block}, chances] = [pgr.space, randomizers.probabilities(pgr, category, epsilon)];
  const total = chances[category] + (points - 1) * chances[(category + 1) % k]; // every report fits as many of all answers
  assert.ok(Math.abs(total - block) < 1e-9 * block);
}
assert.throws(() => projective.spaceFor(3, 4), {name: "Distrust"});
const many = Array.from({length: 20000}, () => randomizers.randomize(mood, 0, 1));
const share = many.filter((one) => one === 0).length / many.length;
assert.ok(Math.abs(share - randomizers.probabilities(mood, 0, 1)[0]) < 0.02, `the share of the truth is ${share}`);
const before = (validUntil, compromised = false) => ({identity: "aa".repeat(32), validUntil, compromised});
const keys = (retired, time) => deployments.believed({identities: ["bb".repeat(32)], retired: [retired]}, time).length;
assert.deepEqual([keys(before(100), 160), keys(before(100), 161), keys(before(100), undefined)], [2, 1, 1]);
assert.deepEqual([keys(before(null), undefined), keys(before(null, true), 1)], [2, 1]);
assert.equal(counting.decimalSum([0.1, 0.1, 0.1]), 0.3);
assert.equal(counting.decimalSum([1e-7, 2.5, 20]), 22.5000001);

// What a device has sent and spent is kept by survey, not by key: five links of one person are one person.
const wave = (number, clientKey = "a", more = {}) => ({
  ...{surveyId: "s", wave: number, roundId: `s-w${number}-1`, clientKey, epsilon: 2, at: number, series: {name: "x", waves: 3}},
  ...more,
});
const report = (clientKey, more = {}) => ({surveyId: "s", name: "x", clientKey, person: clientKey, epsilon: 2, ...more});
const others = (attempt, names) => assert.throws(attempt, (error) => error instanceof counting.OtherPerson && assert.deepEqual(error.persons.map(({name}) => name), names) === undefined);
const admitted = (fresh, stored, said, limit, kept = []) => counting.admit([fresh], stored, kept, limit, said)[0];
const waveOne = admitted(wave(1), []);
assert.equal(waveOne.person, "a");
assert.equal(admitted(wave(1), [waveOne]), waveOne); // the same bytes again
others(() => admitted(wave(2, "b"), [waveOne]), ["a"]); // another link, in another wave, too
others(() => counting.whose(wave(2, "b"), "b", [], [report("a")]), ["a"]); // and where only a report is kept
const waveTwo = admitted(wave(2, "b"), [waveOne], "a");
assert.deepEqual([waveTwo.person, waveTwo.clientKey], ["a", "b"]);
assert.equal(admitted(wave(1, "b"), [waveOne, waveTwo]), waveOne); // who has said it once is not asked again
assert.equal(admitted(wave(1, "c"), [waveOne], "c").person, "c");
assert.equal(admitted(wave(1, "b", {surveyId: "s2", roundId: "s2-w1-1"}), [waveOne]).person, "b");
assert.equal(counting.spent([], [report("a"), report("b", {person: "a"})]), 4); // a person's different reports add up
assert.equal(counting.spent([], [report("a"), report("b")]), 2);
// One answer per wave and person, whatever rounds are shown for it; at most as many rounds of a series as it has waves.
const again = wave(1, "a", {roundId: "s-w1-2"});
assert.equal(admitted(again, [waveOne]), waveOne);
assert.equal(admitted({...again, clientKey: "b"}, [waveOne], "a"), waveOne);
const answered = [1, 2, 3].map((number) => ({...wave(number), person: "a"}));
assert.throws(() => admitted(wave(4), answered), counting.SeriesFull);
assert.throws(() => admitted(wave(4, "b"), answered, "a"), counting.SeriesFull);
assert.equal(admitted(wave(3), answered.slice(0, 2)).roundId, "s-w3-1");
const once = (surveyId) => ({surveyId, wave: 0, roundId: surveyId, clientKey: "a", epsilon: 1});
assert.throws(() => admitted(once("r"), [once("q")], undefined, 1.5), counting.LimitExceeded);
assert.equal(admitted(wave(2), [waveOne], undefined, 1, [report("a")]).person, "a"); // sent again, it spends nothing more

// No version of a survey changes the limit, who reads the results, or whether noise is drawn once; each follows the one before.
const survey = (fields = {}, collector = "aa") => {
  const promised = {totalEpsilon: 1.5, totalDelta: 1e-5, results: 2, permanent: true};
  const schedule = {version: 1, previousHash: new Uint8Array(), firstWave: 1, lastWave: 3, ...promised, ...fields};
  const hash = bytes.sha256(bytes.utf8(JSON.stringify(schedule))); // stands in for that of the survey's bytes
  return {hash, message: {surveyId: "s", schedule, collectorPublicKey: fromHex(collector)}};
};
const known = survey();
const next = {version: 2, previousHash: known.hash, firstWave: 2};
const between = survey(next);
const last = {version: 3, previousHash: between.hash, firstWave: 3};
const continues = (newer, shown = {}) => surveys.checkContinues(known, newer, async (wave) => shown[wave] ?? known);
const breaks = (...how) => assert.rejects(continues(...how), {name: "PromiseChanged"});
await continues(known);
await continues(between);
await continues(survey({...next, lastWave: 9}));
await continues(survey(last), {2: between});
await breaks(survey(last)); // wave 2 is of another version than the newest one names
await breaks(survey({...last, firstWave: 1}));
for (const fields of [{totalEpsilon: 60}, {totalDelta: 1e-4}, {results: 1}, {permanent: false}, {previousHash: new Uint8Array(32)}]) {
  await breaks(survey({...next, ...fields}));
}
await breaks(survey(next, "bb"));
await breaks(survey({lastWave: 9})); // another version 1
await breaks({hash: known.hash, message: {surveyId: "s", collectorPublicKey: fromHex("aa")}});
for (let drawn = 0; drawn < 1000; drawn += 1) {
  const [low, high] = [Math.random() * 10 - 5, 6 + Math.random() * 10];
  const estimate = low + (Math.random() * 3 - 1) * (high - low);
  const {shown, isOutside} = results.placed(estimate, low, high);
  const isPossible = low <= estimate && estimate <= high; // a possible estimate is shown as it is
  assert.deepEqual([isOutside, shown], [!isPossible, isPossible ? estimate : estimate < low ? low : high]);
}
const english = new texts.Texts("en");
const number = (written) => texts.decimalOf(written);
assert.deepEqual(["2,5", "2.5", " 7 ", "-0,25", "\u22123", ".5", "7,", "24", "0.125", "1000,125"].map(number), [2.5, 2.5, 7, -0.25, -3, 0.5, 7, 24, 0.125, 1000.125]);
for (const unclear of ["", " ", ",", "2,5,0", "1.000,5", "1,000.5", "1,000", "12.345", "1 000", "1e3", "0x10", "2,5 h", "Infinity", "٣", "--1"]) {
  assert.ok(Number.isNaN(number(unclear)), unclear);
}
assert.equal(new texts.Texts("de").plain(1234.5), "1234,5");
assert.deepEqual(["constructor", "toString", "halve"].map((name) => english.has(name)), [false, false, true]);
assert.equal(texts.pageLanguage(["constructor", "de-AT"]), "de");

for (const one of vectors.cases) {
  const roles = (name) => (name.startsWith("shuffler") ? "shuffler" : name);
  const services = Object.entries(one.identities).map(([name, identity]) => ({
    ...{name, role: roles(name), identity},
  }));
  const document = {name: "vectors", services};
  const deployment = versionOf(document);
  const signed = read(messages.SignedRoundSchema, one.round);
  const terms = manifests.readRound(signed, deployment, one.round_id);
  const round = new rounds.Round(terms);
  assert.equal(hex(terms.hash), one.manifest_hash);
  assert.deepEqual([hex(terms.survey.hash), hex(surveys.invitationHash(terms.survey))], [one.survey_hash, one.invited_to]);

  const places = {253: "accountant", 254: "release", 255: "analyzer"};
  terms.manifest.hops.forEach((hop, at) => (places[at + 1] = hop.service));
  const ours = [...round.release, ...round.report, ...round.parameter, ...round.joint];
  assert.equal(ours.length, one.layers.length);
  for (const {lane, hop, info, plaintext, sealed} of one.layers) {
    const number = messages.Lane[lane.replace("LANE_", "")];
    const layer = ours.find((other) => other.lane === number && other.hop === hop);
    assert.equal(hex(layer.info), info);
    const recipientKey = await round.suite.kem.deserializePrivateKey(fromHex(one.random[`key of ${places[hop]}`]));
    const enc = fromHex(sealed).slice(0, 32);
    const opened = await round.suite.open({recipientKey, enc, info: layer.info}, fromHex(sealed).slice(32));
    assert.equal(hex(new Uint8Array(opened)), plaintext);
  }

  const order = 2n ** 252n + 27742317777372353535851937790883648493n;
  const blinds = one.tickets.map((given, at) => {
    const drawn = fromHex(one.random[`blind ${at + 2}`]).reverse();
    const scalar = (BigInt(`0x${hex(drawn)}`) % (order - 1n)) + 1n;
    return fromHex(scalar.toString(16).padStart(64, "0")).reverse();
  });
  one.tickets.forEach((given, at) => {
    const blinded = {message: fromHex(given.message), blind: blinds[at], blinded: fromHex(given.blinded)};
    assert.equal(hex(rounds.ticket(blinded, fromHex(given.evaluated), fromHex(given.key))), given.ticket);
    for (const place of [3, 40, 70]) {
      const wrong = fromHex(given.evaluated);
      wrong[place] ^= 1;
      assert.throws(() => rounds.ticket(blinded, wrong, fromHex(given.key)), {name: "Distrust"});
    }
  });

  const key = fromHex(one.random["client key"]);
  for (const [field, purpose] of [["request", "tickets"], ["submission", "submit"]]) {
    const theirs = read(messages.SubmissionSchema, one[field]);
    assert.equal(hex(round.sign(purpose, theirs.envelope, key)), one[field]);
  }
  const prepared = await round.prepare(randomizers.encodeReport(1), 1, key);
  assert.equal(prepared.sealed.length, 56);
  assert.equal(hex(prepared.record).slice(0, 32), one.budget.record.slice(0, 32));

  const certificate = read(messages.SignedSchema, one.certificate);
  const stated = client.fromBinary(messages.CertificateSchema, certificate.payload);
  assert.equal(results.certifiedChain(stated, terms, deployment)[0].length, terms.manifest.hops.length);
  const pages = {
    call: async (_, {hop, lane, offset}) => {
      const whole = fromHex(one.lists[`${hop} LANE_${messages.Lane[lane]}`]);
      return {hashes: whole.slice(32 * Number(offset), 32 * Number(offset) + 64)};
    },
  };
  const own = one.inclusion.map((pair) => pair.map(fromHex));
  assert.deepEqual(await results.missingAt(pages, stated, terms, deployment, own), []);
  const lost = own.map(([report], at) => [report, at === 0 ? new Uint8Array(32) : own[at][1]]);
  assert.deepEqual(await results.missingAt(pages, stated, terms, deployment, lost), [terms.manifest.hops[0].service]);
  stated.batchDigest = new Uint8Array(32);
  assert.throws(() => results.certifiedChain(stated, terms, deployment), {name: "Distrust"});

  // What is not as it should be is refused: keys, names, order, signatures, fields.
  const refused = (changed, what = signed) =>
    assert.throws(() => manifests.readRound(what, versionOf({...document, ...changed})), {name: "Distrust"});
  refused({name: "other"});
  refused({privacy_limit: {total_epsilon: 1, total_delta: 1e-5, max_rounds: 0, fixed_terms: false}});
  if (one.name === "two-hops") refused({services: [services[1], services[0], ...services.slice(2)]});
  for (const identity of ["00".repeat(32), `01${"00".repeat(31)}`]) {
    refused({services: services.map((each, at) => (at ? each : {...each, identity}))});
  }
  const {manifest} = signed;
  const otherwise = (changed) => refused({}, {...signed, manifest: {...manifest, ...changed}});
  otherwise({signatures: manifest.signatures.slice(1)});
  otherwise({signatures: [...manifest.signatures, manifest.signatures[0]]});
  otherwise({payload: concat(manifest.payload, fromHex("f8070a"))}); // a field that nobody knows
  refused({}, {...signed, survey: concat(signed.survey, fromHex("f8070a"))});
  assert.throws(() => manifests.readRound(signed, deployment, "other"), {name: "Distrust"});
  console.log(`${one.name}: ok`);
}

// Rounds that Python has made and signed: each is read or refused here as there.
for (const {what, round, deployment, accepted, ...facts} of vectors.rounds ?? []) {
  const pinned = deployments.readStatement(deployment);
  const attempt = () => manifests.readRound(read(messages.SignedRoundSchema, round), pinned);
  if (accepted !== true) {
    assert.throws(attempt, {name: accepted}, what);
    continue;
  }
  const terms = attempt();
  const series = surveys.seriesOf(terms)?.name ?? "";
  assert.deepEqual({round_id: terms.roundId, invited_to: hex(surveys.invitationHash(terms.survey)), series}, facts, what);
}
assert.ok(answering.fetchRound);

// Versions of a deployment file: each chain is followed or refused here as by Python's clients.
for (const {what, versions: places, newest} of vectors.chains) {
  const chain = () => versions.follow(places.map((at) => versions.readSigned(vectors.signed[at])));
  if (newest) assert.equal(chain().fingerprint, newest, what);
  else assert.throws(chain, {name: "Distrust"}, what);
}
console.log("page: ok");
