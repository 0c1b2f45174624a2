// What a client refuses, and what is refused to it. Each has a code by which the page finds its sentence.

/** A document, a key or an answer of a service that cannot be trusted or understood: nothing is sent. */
export class Distrust extends Error {
  override name = "Distrust";
}

/** A version of a study that changes what an earlier version has promised for all of them. */
export class PromiseChanged extends Distrust {
  override name = "PromiseChanged";
}

/** A round that only the program can answer. */
export class NeedsProgram extends Error {
  override name = "NeedsProgram";
}

/** A service refused a call, or could not be reached; `code` is one of croupier/protocol/errors.py, or UNREACHABLE. */
export class Refused extends Error {
  override name = "Refused";
  constructor(
    readonly code: string,
    message: string,
    readonly mayPass: boolean,
    readonly retryAfterMs = 0,
  ) {
    super(message);
  }
}

export function check(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new Distrust(otherwise);
}
