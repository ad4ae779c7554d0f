// The shop's carts, for bench/shop.py: `node cart.js NAME ADDRESS PORT`. Each has the carts of its own clients in memory.
//
// GET /cart shows a client's cart, POST /cart puts the body into it, both as JSON with the server's name. WebSockets at
// /live are greeted with the server's name, and each message comes back.
"use strict";
const crypto = require("node:crypto");
const http = require("node:http");

const [name, address, port] = process.argv.slice(2);
const carts = new Map();

function cookie(request) {
  const found = /(?:^|;\s*)cart=([^;]*)/.exec(request.headers.cookie || "");
  return found ? found[1] : "";
}

const server = http.createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const client = cookie(request);
    const cart = carts.get(client) || [];
    if (request.method === "POST") {
      cart.push(Buffer.concat(chunks).toString());
      carts.set(client, cart);
    }
    const body = JSON.stringify({ server: name, url: request.url, cart, headers: request.headers });
    response.writeHead(200, { "content-type": "application/json", "x-backend": name });
    response.end(body);
  });
});
server.keepAliveTimeout = 60_000;

// RFC 6455 1.3.
const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

server.on("upgrade", (request, socket, head) => {
  const accept = crypto.createHash("sha1").update(request.headers["sec-websocket-key"] + GUID).digest("base64");
  socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
    `Sec-WebSocket-Accept: ${accept}\r\nX-Backend: ${name}\r\n\r\n`);
  socket.write(frame(1, Buffer.from(name)));
  let kept = head;
  const take = () => {
    for (let found = parse(kept); found; found = parse(kept)) {
      kept = kept.subarray(found.bytes);
      socket.write(frame(found.opcode, found.payload));
      if (found.opcode === 8) socket.end();
    }
  };
  take();
  socket.on("data", (data) => {
    kept = Buffer.concat([kept, data]);
    take();
  });
  socket.on("end", () => socket.end());
  socket.on("error", () => socket.destroy());
});

// A whole message as a frame, for payloads below 65,536 bytes.
function frame(opcode, payload) {
  const long = payload.length > 125;
  const head = Buffer.alloc(long ? 4 : 2);
  head[0] = 0x80 | opcode;
  head[1] = long ? 126 : payload.length;
  if (long) head.writeUInt16BE(payload.length, 2);
  return Buffer.concat([head, payload]);
}

// The first frame of a client's, undefined while it is not whole.
function parse(data) {
  if (data.length < 2) return undefined;
  let length = data[1] & 0x7f;
  let at = 2;
  if (length === 126) {
    if (data.length < 4) return undefined;
    length = data.readUInt16BE(2);
    at = 4;
  }
  if (data.length < at + 4 + length) return undefined;
  const key = data.subarray(at, at + 4);
  const payload = Buffer.from(data.subarray(at + 4, at + 4 + length));
  for (let i = 0; i < length; i++) payload[i] ^= key[i % 4];
  return { opcode: data[0] & 0x0f, payload, bytes: at + 4 + length };
}

server.listen(Number(port), address);
