// A client's calls through a gateway: unary calls of the Connect protocol, as docs/gateway.md has them.
import {create, type DescMessage, type MessageInitShape, type MessageShape, toBinary} from "@bufbuild/protobuf";

import {type Bytes, concat, copy} from "./bytes.js";
import {decode} from "./documents.js";
import {GetTicketsRequestSchema, GetTicketsResponseSchema, SubmitRequestSchema, SubmitResponseSchema} from "./gen/croupier/protocol/v1/messages_pb.js";
import {
  GetInclusionRequestSchema,
  GetInclusionResponseSchema,
  GetResultRequestSchema,
  GetResultResponseSchema,
  GetRoundRequestSchema,
  GetRoundResponseSchema,
} from "./gen/croupier/protocol/v1/services_pb.js";
import {Distrust, Refused} from "./refusals.js";

const MOST_BYTES = 4 * 1024 * 1024;
const PATIENCE_MS = 20_000;
const LONGEST_PAUSE_MS = 10_000;
const MAY_PASS = [408, 429, 502, 503, 504];

const CALLS = {
  GetRound: ["Shuffler", GetRoundRequestSchema, GetRoundResponseSchema],
  Submit: ["Shuffler", SubmitRequestSchema, SubmitResponseSchema],
  GetInclusion: ["Shuffler", GetInclusionRequestSchema, GetInclusionResponseSchema],
  GetTickets: ["Accountant", GetTicketsRequestSchema, GetTicketsResponseSchema],
  GetResult: ["Analyzer", GetResultRequestSchema, GetResultResponseSchema],
} as const satisfies Record<string, [string, DescMessage, DescMessage]>;

type Calls = typeof CALLS;

/** Returns a body that has at most 4 MiB; the rest of a larger one is not read. */
export async function readBody(answer: Response): Promise<Bytes> {
  const parts: Uint8Array[] = [];
  let size = 0;
  const reader = answer.body?.getReader();
  for (;;) {
    const {done, value} = (await reader?.read()) ?? {done: true, value: undefined};
    if (done || !value) return concat(...parts);
    parts.push(value);
    size += value.length;
    if (size > MOST_BYTES) {
      await reader?.cancel();
      throw new Distrust(`the gateway's answer has more than ${MOST_BYTES} bytes`);
    }
  }
}

async function request(url: string, how: RequestInit): Promise<Bytes> {
  let answer: Response;
  let body: Bytes;
  try {
    answer = await fetch(url, {
      ...how,
      redirect: "error",
      credentials: "omit",
      cache: "no-store",
      referrerPolicy: "no-referrer",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    body = await readBody(answer);
  } catch (error) {
    if (error instanceof Distrust) throw error;
    throw new Refused("UNREACHABLE", String(error), true);
  }
  if (answer.ok) return body;
  const said = new TextDecoder().decode(body.subarray(0, 2000));
  const code = /"message": ?"([A-Z_]{3,40})(:|")/.exec(said)?.[1] ?? (answer.status === 404 ? "NOT_FOUND" : "UNREACHABLE");
  const wait = Number(answer.headers.get("trailer-retry-after-ms")) || 0;
  throw new Refused(code, said, MAY_PASS.includes(answer.status), wait);
}

export class Gateway {
  /** url: of the gateway, ending in a slash; pause: waits for so many milliseconds. */
  constructor(
    readonly url: string,
    private readonly pause: (ms: number) => Promise<void> = (ms) => new Promise((done) => setTimeout(done, ms)),
  ) {}

  /** Returns the document of the newest version of the deployment. */
  async deployment(): Promise<Bytes> {
    return this.patiently(() => request(`${this.url}participate/deployment.json`, {method: "GET"}), 2);
  }

  /** Returns the document of all versions. */
  async versions(): Promise<Bytes> {
    return this.patiently(() => request(`${this.url}participate/versions.json`, {method: "GET"}), 2);
  }

  async call<Name extends keyof Calls>(
    name: Name,
    asked: MessageInitShape<Calls[Name][1]>,
    attempts = 4,
  ): Promise<MessageShape<Calls[Name][2]>> {
    const [service, asks, answers] = CALLS[name];
    const body = copy(toBinary(asks as DescMessage, create(asks as DescMessage, asked)));
    const url = `${this.url}croupier.protocol.v1.${service}/${name}`;
    const how = {method: "POST", headers: {"content-type": "application/proto"}, body};
    const answer = await this.patiently(() => request(url, how), attempts);
    return decode(`answer of the ${service.toLowerCase()}`, answers as DescMessage, answer) as MessageShape<Calls[Name][2]>;
  }

  /** Repeats what may pass, with growing and random pauses that depend on nothing else. */
  private async patiently<Answer>(attempt: () => Promise<Answer>, attempts: number): Promise<Answer> {
    for (let tried = 1; ; tried += 1) {
      try {
        return await attempt();
      } catch (error) {
        if (!(error instanceof Refused) || !error.mayPass || tried >= attempts) throw error;
        await this.pause(Math.max(Math.min(error.retryAfterMs, LONGEST_PAUSE_MS), 500 * 2 ** tried * (0.5 + Math.random() / 2)));
      }
    }
  }
}
