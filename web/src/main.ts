// Everything in one file: the page, and for tests and other programs the client behind it.
export * as answering from "./answering.js";
export * as bytes from "./bytes.js";
export * as calls from "./calls.js";
export * as counting from "./counting.js";
export * as deployments from "./deployment.js";
export * as documents from "./documents.js";
export * as manifests from "./manifest.js";
export * as outboxes from "./outbox.js";
export * as projective from "./projective.js";
export * as randomizers from "./randomize.js";
export * as results from "./results.js";
export * as rounds from "./round.js";
export * as surveys from "./survey.js";
export * as shown from "./shown.js";
export * as texts from "./texts.js";
export * as versions from "./versions.js";
export * as messages from "./gen/croupier/protocol/v1/messages_pb.js";
export {fromBinary, toBinary} from "@bufbuild/protobuf";

import {startPage} from "./page.js";

startPage();
