// The projective space of a question with many categories: docs/another-language.md numbers its points.
import {check} from "./refusals.js";

const FIELDS = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61];
const MOST_VECTORS = 2 ** 22;

export interface Space {
  q: number;
  t: number;
  /** How many points it has, and how many of them each hyperplane has. */
  points: number;
  block: number;
}

/** Returns the smallest space over a field of q elements with a hyperplane for each of k categories. */
export function spaceFor(k: number, q: number): Space {
  check(FIELDS.includes(q), "the field of the categories is not one");
  const points = (t: number): number => (q ** t - 1) / (q - 1);
  let t = 2;
  while (points(t) < k) t += 1;
  check(q ** t <= MOST_VECTORS, "the field of the categories is too large");
  return {q, t, points: points(t), block: points(t - 1)};
}

const digits = (number: number, places: number, q: number): number[] =>
  Array.from({length: places}, (_, at) => Math.floor(number / q ** (places - 1 - at)) % q);

function vectorOf({q, t}: Space, point: number): number[] {
  let after = 0;
  for (; point >= q ** after; after += 1) point -= q ** after;
  return [...Array<number>(t - 1 - after).fill(0), 1, ...digits(point, after, q)];
}

/** Returns a point on the hyperplane of a point, each one for equally many `drawn` in 1 .. q^(t-1) - 1. */
export function onHyperplane(space: Space, point: number, drawn: number): number {
  const {q, t} = space;
  const normal = vectorOf(space, point);
  const pivot = normal.indexOf(1);
  const vector = digits(drawn, t - 1, q);
  vector.splice(pivot, 0, 0);
  const product = normal.reduce((sum, entry, at) => sum + entry * vector[at]!, 0);
  vector[pivot] = (q - (product % q)) % q;
  const first = vector.findIndex((entry) => entry !== 0);
  let inverse = 1;
  while ((inverse * vector[first]!) % q !== 1) inverse += 1;
  const number = vector.slice(first + 1).reduce((sum, entry) => sum * q + ((entry * inverse) % q), 0);
  return number + (q ** (t - 1 - first) - 1) / (q - 1);
}
