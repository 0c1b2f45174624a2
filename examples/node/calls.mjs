// The two ways in which a call reaches a service: gRPC, or a gateway by plain fetch. Each returns
// call(service, "Service/Method", request), which answers with the decoded message or throws.
import {message} from "./protocol.mjs";

const PATIENCE_MS = 20_000;
const MOST_BYTES = 4 * 1024 * 1024; // of an answer, as the services keep to
const encode = (method, one) => {
  const type = message(`${method.split("/")[1]}Request`);
  return Buffer.from(type.encode(type.create(one)).finish());
};
const decode = (method, raw) => message(`${method.split("/")[1]}Response`).decode(raw);

export async function overGrpc() {
  const {default: grpc} = await import("@grpc/grpc-js");
  return (service, method, request) => {
    const roots = [service.tls_certificate, service.pending_tls_certificate].filter(Boolean).join("\n");
    const options = {"grpc.ssl_target_name_override": service.name, "grpc.default_authority": service.name};
    options["grpc.max_receive_message_length"] = MOST_BYTES;
    const client = new grpc.Client(service.public_address, grpc.credentials.createSsl(Buffer.from(roots)), options);
    return new Promise((resolve, reject) => {
      client.makeUnaryRequest(
        `/croupier.protocol.v1.${method}`,
        (one) => encode(method, one),
        (raw) => decode(method, raw),
        request,
        {deadline: Date.now() + PATIENCE_MS},
        (error, response) => {
          client.close();
          if (error) reject(error);
          else resolve(response);
        },
      );
    });
  };
}

/** Returns a body that has at most MOST_BYTES; the rest of a larger one is not read. */
export async function readBody(answer) {
  const parts = [];
  let size = 0;
  for await (const part of answer.body ?? []) {
    size += part.length;
    if (size > MOST_BYTES) throw new Error(`the gateway's answer has more than ${MOST_BYTES} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

export function overHttps(gateway) {
  return async (_, method, request) => {
    const answer = await fetch(`${gateway.replace(/\/+$/, "")}/croupier.protocol.v1.${method}`, {
      method: "POST",
      headers: {"content-type": "application/proto"},
      body: encode(method, request),
      redirect: "error",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    const body = await readBody(answer);
    if (!answer.ok) throw new Error(`the gateway says ${answer.status}: ${JSON.stringify(body.toString().slice(0, 500))}`);
    return decode(method, body);
  };
}
