// Checks that a gateway's answer of any size is not read to its end: node bodies.mjs
import assert from "node:assert/strict";

import {readBody} from "./calls.mjs";

const part = new Uint8Array(65536);
let sent = 0;
const pull = (controller) => {
  sent += part.length;
  controller.enqueue(part);
};
await assert.rejects(readBody(new Response(new ReadableStream({pull}))), /more than 4194304 bytes/);
assert.ok(sent < 2 ** 23);
assert.equal((await readBody(new Response("small"))).toString(), "small");
console.log("bodies: ok");
