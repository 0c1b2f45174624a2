// The two ways in which a call reaches a service: gRPC, or a gateway by plain fetch. Each returns
// call(service, "Service/Method", request), which answers with the decoded message or throws.
import {message} from "./protocol.mjs";

const PATIENCE_MS = 20_000;
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

export function overHttps(gateway) {
  return async (_, method, request) => {
    const answer = await fetch(`${gateway.replace(/\/+$/, "")}/croupier.protocol.v1.${method}`, {
      method: "POST",
      headers: {"content-type": "application/proto"},
      body: encode(method, request),
      redirect: "error",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    const body = Buffer.from(await answer.arrayBuffer());
    if (!answer.ok) throw new Error(`the gateway says ${answer.status}: ${body}`);
    return decode(method, body);
  };
}
