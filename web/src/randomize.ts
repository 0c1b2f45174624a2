// The local randomizers, with exact integer thresholds: probabilities are never on the side of less privacy.
import {asBigInt, type Bytes, randomBytes} from "./bytes.js";
import {type Answerable, isNumber} from "./question.js";
import {onHyperplane} from "./projective.js";
import {check} from "./refusals.js";

const WHOLE = 2n ** 64n;
const BITS = 256n;
type Draw = () => bigint;

/** Returns 64 random bits of the operating system. */
const systemDraw: Draw = () => asBigInt(randomBytes(8));

/** Returns ceil(2^64 k / (s e^epsilon + k - s)), s the `kept` values that are likelier than the other ones. The series is
 * cut off below e^epsilon, which makes it larger at most. */
export function blanketThreshold(epsilon: number, k: number, kept = 1): bigint {
  check(epsilon > 1e-9 && epsilon <= 20, "the budget is out of range");
  const x = BigInt(epsilon * 2 ** 82) << (BITS - 82n); // exact for a double of at least 1e-9
  let [term, sum] = [1n << BITS, 0n];
  for (let n = 1n; term > 0n; n += 1n) {
    sum += term;
    term = (term * x) / (n << BITS);
  }
  const below = BigInt(kept) * sum + (BigInt(k - kept) << BITS);
  return ((BigInt(k) << (64n + BITS)) + below - 1n) / below;
}

export const flipThreshold = (epsilon: number): bigint => (blanketThreshold(epsilon, 2) + 1n) / 2n;

/** A fraction of BigInts with a denominator > 0. */
interface Fraction {
  over: bigint;
  under: bigint;
}

/** Returns a finite double as the fraction that it is. */
function exactly(value: number): Fraction {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  const bits = view.getBigUint64(0);
  const exponent = Number((bits >> 52n) & 2047n);
  const mantissa = (bits & (2n ** 52n - 1n)) | (exponent ? 2n ** 52n : 0n);
  const signed = bits >> 63n ? -mantissa : mantissa;
  const shift = (exponent || 1) - 1075;
  return shift >= 0 ? {over: signed << BigInt(shift), under: 1n} : {over: signed, under: 1n << BigInt(-shift)};
}

const minus = (a: Fraction, b: Fraction): Fraction => ({
  over: a.over * b.under - b.over * a.under,
  under: a.under * b.under,
});

/** Returns where a number lies in its interval, 0 .. 1, exactly. */
export function positionOf(value: number, low: number, high: number): Fraction {
  const [part, whole] = [minus(exactly(value), exactly(low)), minus(exactly(high), exactly(low))];
  return {over: part.over * whole.under, under: part.under * whole.over};
}

function randomizeBit(bit: number, epsilon: number, draw: Draw): number {
  return draw() < flipThreshold(epsilon) ? 1 - bit : bit;
}

/** Returns a uniform category: draws beyond the largest multiple of k are drawn again. */
export function below(k: number, draw: Draw = systemDraw): number {
  const most = WHOLE - (WHOLE % BigInt(k));
  for (;;) {
    const drawn = draw();
    if (drawn < most) return Number(drawn % BigInt(k));
  }
}

type Numbers = Extract<Answerable, {low: number}>;

/** Returns how many levels a number is rounded to: of onebit the two ends. */
const levelCount = (asked: Numbers): number => (asked.kind === "levels" ? asked.k : 2);

/** Returns the levels, ascending. */
export function levelsOf(asked: Numbers): number[] {
  const last = levelCount(asked) - 1;
  return Array.from({length: last + 1}, (_, at) => (at === last ? asked.high : asked.low + (asked.high - asked.low) * (at / last)));
}

/** Returns the level below a number or on it, and how far the number is on the way to the next, as a fraction. */
function placeOf(asked: Numbers, value: number): {level: number; rest: bigint; under: bigint} {
  const {over, under} = positionOf(value, asked.low, asked.high);
  const scaled = over * BigInt(levelCount(asked) - 1);
  return {level: Number(scaled / under), rest: scaled % under, under};
}

/** Returns an answer that is drawn uniformly: a choice, or one end of the range. */
export function drawAnswer(asked: Answerable): number {
  if (asked.kind === "choices") return below(2 ** asked.choices);
  if (!isNumber(asked)) return below(asked.choices);
  return levelsOf(asked)[below(levelCount(asked))]!;
}

/** Checks an answer. */
export function checkValue(asked: Answerable, value: number): void {
  const fits =
    isNumber(asked)
      ? value >= asked.low && value <= asked.high
      : Number.isInteger(value) && value >= 0 && value < (asked.kind === "choices" ? 2 ** asked.choices : asked.choices);
  check(fits, "the answer is out of range");
}

/** Returns one report; each call spends the budget once. */
export function randomize(asked: Answerable, value: number, epsilon: number, draw: Draw = systemDraw): number {
  checkValue(asked, value);
  if (asked.kind === "rr") return randomizeBit(value, epsilon, draw);
  if (asked.kind === "krr") return draw() < blanketThreshold(epsilon, asked.choices) ? below(asked.choices, draw) : value;
  if (asked.kind === "pgr") {
    const {q, t, points, block} = asked.space;
    if (draw() < blanketThreshold(epsilon, points, block)) return below(points, draw);
    return onHyperplane(asked.space, value, 1 + below(q ** (t - 1) - 1, draw));
  }
  if (asked.kind === "choices") {
    const option = below(asked.choices, draw);
    return 2 * option + randomizeBit(Math.floor(value / 2 ** option) % 2, epsilon, draw);
  }
  const {level, rest, under} = placeOf(asked, value);
  const rounded = level + (draw() * under < rest * WHOLE ? 1 : 0);
  if (asked.kind === "onebit") return randomizeBit(rounded, epsilon, draw);
  return draw() < blanketThreshold(epsilon, asked.k) ? below(asked.k, draw) : rounded;
}

/** Returns a report as it travels: 8 bytes, big-endian. */
export function encodeReport(report: number): Bytes {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigInt64(0, BigInt(report));
  return bytes;
}

/** Returns the probability of each report for an answer, and where a report fits several answers, of one that fits each. For
 * a number it is the probability of each level: of onebit the low and the high end. Of several choices, whose report is about
 * one of them: of the opposite of the truth about it, and of the truth. */
export function probabilities(asked: Answerable, value: number, epsilon: number): number[] {
  const share = (threshold: bigint) => Number(threshold) / Number(WHOLE);
  if (asked.kind === "krr") {
    const blanket = share(blanketThreshold(epsilon, asked.choices));
    const each = blanket / asked.choices;
    return Array.from({length: asked.choices}, (_, at) => each + (at === value ? 1 - blanket : 0));
  }
  if (asked.kind === "pgr") {
    const {points, block} = asked.space;
    const blanket = share(blanketThreshold(epsilon, points, block));
    const other = (blanket * block) / points + ((1 - blanket) * (block - 1)) / (points - 1);
    return Array.from({length: asked.choices}, (_, at) => (at === value ? (blanket * block) / points + 1 - blanket : other));
  }
  if (asked.kind === "levels") {
    const blanket = share(blanketThreshold(epsilon, asked.k));
    const {level, rest, under} = placeOf(asked, value);
    const up = Number((rest * WHOLE) / under) / Number(WHOLE);
    const kept = (at: number) => (at === level ? 1 - up : at === level + 1 ? up : 0);
    return Array.from({length: asked.k}, (_, at) => blanket / asked.k + (1 - blanket) * kept(at));
  }
  const flip = share(flipThreshold(epsilon));
  if (asked.kind === "choices") return [flip, 1 - flip];
  const one = asked.kind === "rr" ? value : (value - asked.low) / (asked.high - asked.low);
  const high = one * (1 - flip) + (1 - one) * flip;
  return [1 - high, high];
}

/** Returns how often someone can be right about which of two answers was given, at most, at an epsilon and a delta. */
export const rightAtMost = (epsilon: number, delta = 0): number => (1 + delta * Math.exp(-epsilon)) / (1 + Math.exp(-epsilon));
