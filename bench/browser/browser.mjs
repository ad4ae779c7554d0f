// WebSocket and HTTPS as Chromium sees them. `../browser.py` starts the servers and says where they are:
//
//   node browser.mjs '{"plain": "http://127.0.0.1:1", "secure": "https://127.0.0.1:2", "spki": "...", "chromium": "/usr/bin/chromium"}'
//
// Exit code: 0 all is well, 1 something is not, 2 could not be run.

import { createServer } from 'node:http';
import { userInfo } from 'node:os';
import { chromium } from 'playwright-core';

// The server's default limit of a message is 1 MiB. A surrogate pair is four bytes, so that texts are cut within it.
const TEXTS = ['', 'a', 'é'.repeat(62), 'x'.repeat(126), '𝄞'.repeat(16384), 'x'.repeat(1_000_000)];
const BINARY = [0, 1, 125, 126, 65535, 65536, 1_000_000];
const DEADLINE_MS = 20_000;

class Failed extends Error {}

function expect(what, right, found) {
  if (!right) throw new Failed(`expected ${what}, found ${JSON.stringify(found)}`);
}

// A browser that takes the certificate with this key and no other that it does not know: on Linux, Chromium trusts
// authorities of the user's NSS store alone, and a store is not ours to change.
function launch(executablePath, spki) {
  const root = userInfo().uid === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({ executablePath, args: [...root, ...(spki ? [`--ignore-certificate-errors-spki-list=${spki}`] : [])] });
}

// Runs in the page: sends all before it reads the first, as pages do, and closes.
async function echo({ url, texts, binary }) {
  const socket = new WebSocket(url);
  socket.binaryType = 'arraybuffer';
  const received = [];
  const closed = new Promise((resolve) => { socket.onclose = ({ code, reason, wasClean }) => resolve({ code, reason, wasClean }); });
  const opened = new Promise((resolve) => { socket.onopen = () => resolve(true); socket.onerror = () => resolve(false); });
  if (!await opened) return { opened: false, closed: await closed };
  const bytes = binary.map((length) => Uint8Array.from({ length }, (_, i) => (i * 7 + length) % 251));
  const wanted = [...texts, ...bytes];
  const all = new Promise((resolve) => {
    socket.onmessage = ({ data }) => { received.push(data); if (received.length === wanted.length) resolve(); };
    closed.then(resolve);
  });
  for (const message of wanted) socket.send(message);
  await all;
  socket.close(1000, 'done');
  const same = (a, b) => typeof a === 'string' ? a === b : b instanceof ArrayBuffer && a.length === b.byteLength
    && new Uint8Array(b).every((byte, i) => byte === a[i]);
  const wrong = wanted.map((message, i) => same(message, received[i]) ? null : i).filter((i) => i !== null);
  return { opened: true, count: received.length, wrong, extensions: socket.extensions, closed: await closed };
}

// Runs in the page: whether a WebSocket opens.
function opens(url) {
  return new Promise((resolve) => {
    const socket = new WebSocket(url);
    socket.onopen = () => { socket.close(); resolve(true); };
    socket.onerror = () => resolve(false);
  });
}

const socketOf = (base) => `${base.replace(/^http/, 'ws')}/ws`;

async function sameOrigin(page, base) {
  // Plain text: the page at / has a policy of its own, which says what it may ask.
  await page.goto(`${base}/plaintext`);
  const json = await page.evaluate(async () => (await fetch('/json')).json());
  expect(`JSON from ${base}`, json.message === 'Hello, World!', json);
  const found = await page.evaluate(echo, { url: socketOf(base), texts: TEXTS, binary: BINARY });
  const count = TEXTS.length + BINARY.length;
  expect(`${count} messages back on ${socketOf(base)}, as they were and in order`, found.count === count && found.wrong.length === 0, found);
  const { code, reason, wasClean } = found.closed;
  expect('a clean close with 1000', code === 1000 && wasClean, { code, reason, wasClean });
  console.log(`${socketOf(base)}: ${count} messages back, closed cleanly; extensions: ${found.extensions || 'none'}; ${base}/json: ok`);
}

async function foreignOrigin(page, bases) {
  const server = createServer((_, answer) => answer.setHeader('Content-Type', 'text/html').end('<title>foreign</title>'));
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    for (const host of ['127.0.0.1', 'localhost']) {
      await page.goto(`http://${host}:${server.address().port}/`);
      for (const base of bases) {
        expect(`${socketOf(base)} to refuse a page of ${page.url()}`, await page.evaluate(opens, socketOf(base)) === false, 'it opened');
      }
    }
  } finally {
    server.close();
    server.closeAllConnections();
  }
  console.log('pages of another origin: WebSockets refused');
}

async function unknownCertificate(executablePath, secure) {
  const browser = await launch(executablePath, null);
  try {
    const page = await browser.newPage();
    const said = await page.goto(secure).then(() => 'a page', (error) => error.message);
    expect('the certificate to be refused where its key is not named, so that the rest means something', said.includes('ERR_CERT_'), said);
  } finally {
    await browser.close();
  }
  console.log('the development certificate is trusted by nobody who was not told of it');
}

async function main({ plain, secure, spki, chromium: executablePath }) {
  await unknownCertificate(executablePath, secure);
  const browser = await launch(executablePath, spki);
  try {
    console.log(`Chromium ${browser.version()}`);
    const page = await browser.newPage();
    page.setDefaultTimeout(DEADLINE_MS);
    for (const base of [plain, secure]) await sameOrigin(page, base);
    await foreignOrigin(page, [plain, secure]);
  } finally {
    await browser.close();
  }
}

try {
  await main(JSON.parse(process.argv[2]));
} catch (error) {
  console.error(error instanceof Failed ? `FAILED: ${error.message}` : `could not be run: ${error.stack}`);
  process.exit(error instanceof Failed ? 1 : 2);
}
