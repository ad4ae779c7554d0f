// The npm package grpc-web as pages use it, against examples/grpc.rs: `node client.mjs HOST:PORT`.
//
// Its transport is XMLHttpRequest, which xhr2 is in Node. Messages are written by hand: one field of text.
import XMLHttpRequest from "xhr2";
import grpcWeb from "grpc-web";
import assert from "node:assert/strict";

globalThis.XMLHttpRequest = XMLHttpRequest;
const { GrpcWebClientBase, MethodDescriptor, MethodType, StatusCode } = grpcWeb;
const host = `http://${process.argv[2]}`;

class Text {
  constructor(text = "") {
    this.text = text;
  }
}

/** Shorter than 128 bytes. */
function encode(message) {
  const bytes = new TextEncoder().encode(message.text);
  return bytes.length === 0 ? new Uint8Array() : Uint8Array.of(0x0a, bytes.length, ...bytes);
}

function decode(bytes) {
  const payload = new Uint8Array(bytes);
  assert.ok(payload.length === 0 || (payload[0] === 0x0a && payload[1] === payload.length - 2));
  return new Text(new TextDecoder().decode(payload.slice(2)));
}

const method = (name, kind) =>
  new MethodDescriptor(`/demo.Greeter/${name}`, kind, Text, Text, encode, decode);
const greet = method("Greet", MethodType.UNARY);
const repeat = method("Repeat", MethodType.SERVER_STREAMING);
const missing = method("Other", MethodType.UNARY);

const call = (client, descriptor, text, metadata = {}) =>
  client.unaryCall(host + descriptor.getName(), new Text(text), metadata, descriptor);

/** Replies until the stream ends, and how it ends. */
function stream(client, text, metadata) {
  return new Promise((resolve) => {
    const replies = [];
    let status;
    const running = client.serverStreaming(host + repeat.getName(), new Text(text), metadata, repeat);
    running.on("data", (reply) => replies.push(reply.text));
    running.on("status", (found) => (status = found.code));
    running.on("error", (error) => resolve({ replies, code: error.code }));
    running.on("end", () => resolve({ replies, code: status }));
  });
}

for (const format of ["text", "binary"]) {
  const client = new GrpcWebClientBase({ format });
  assert.equal((await call(client, greet, "you")).text, "Hello, you!");
  assert.equal((await call(client, greet, "J\u00f6rg \u{1f600}")).text, "Hello, J\u00f6rg \u{1f600}!");
  await assert.rejects(call(client, greet, ""), (error) => {
    assert.equal(error.code, StatusCode.INVALID_ARGUMENT);
    assert.equal(error.message, "name: expected some text, found none");
    return true;
  });
  await assert.rejects(call(client, missing, "you"), { code: StatusCode.UNIMPLEMENTED });
  if (format === "text") {
    // Streams are for text alone, by XMLHttpRequest.
    const { replies, code } = await stream(client, "you", { deadline: String(Date.now() + 900) });
    assert.ok(replies.length >= 2, `${replies.length} replies`);
    assert.ok(replies.every((reply) => reply === "Hello, you!"));
    assert.equal(code, StatusCode.DEADLINE_EXCEEDED);
  }
  console.log(`grpc-web, ${format}: as expected`);
}
