// HTTP/2 as a browser speaks it: `node look.mjs '{"name": "Firefox", "executable": "/usr/bin/firefox", "origin": "https://localhost:1", ...}'`.
// `run.sh` starts the servers and says where they are. `log` is the gateway's access log, in which each request's protocol stands.
//
// Exit code: 0 all is well, 1 something is not, 2 could not be run.

import { readFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { buildSync } from 'esbuild';
import puppeteer from 'puppeteer-core';

const DEADLINE_MS = 20_000;
const TEXTS = ['', 'a', 'é'.repeat(62), '𝄞'.repeat(16384), 'x'.repeat(900_000)];

class Failed extends Error {}

function expect(what, right, found) {
  if (!right) throw new Failed(`expected ${what}, found ${JSON.stringify(found)}`);
}

async function protocol(page, origin) {
  await page.goto(`${origin}/plaintext`);
  const found = await page.evaluate(async () => {
    const json = await (await fetch('/json')).json();
    const answers = await Promise.all(Array.from({ length: 50 }, async (_, i) => (await fetch(`/json?${i}`)).status));
    const entries = performance.getEntriesByType('resource').map((entry) => entry.nextHopProtocol);
    return { page: performance.getEntriesByType('navigation')[0].nextHopProtocol, json, answers, entries };
  });
  expect('the page by h2', found.page === 'h2', found.page);
  expect('fifty answers of 200 at once', found.answers.every((status) => status === 200), found.answers);
  expect('all by h2', found.entries.length > 0 && found.entries.every((name) => name === 'h2'), found.entries);
  expect('the JSON', found.json.message === 'Hello, World!', found.json);
  return 'page and 51 requests by h2';
}

// Runs in the page: all are sent before the first is read.
function echo(texts) {
  return new Promise((resolve) => {
    const socket = new WebSocket(`${location.origin.replace(/^http/, 'ws')}/ws`);
    const back = [];
    socket.onopen = () => texts.forEach((text) => socket.send(text));
    socket.onmessage = ({ data }) => { back.push(data); if (back.length === texts.length) socket.close(1000, 'done'); };
    socket.onclose = ({ code, wasClean }) => resolve({ code, wasClean, same: texts.map((text, i) => text === back[i]) });
  });
}

async function socket(page, log) {
  const found = await page.evaluate(echo, TEXTS);
  expect('a clean close with 1000', found.code === 1000 && found.wasClean, found);
  expect('all messages back, as they were', found.same.every(Boolean), found.same);
  // RFC 8441: a stream, answered with 200, not a connection of its own, answered with 101.
  const until = Date.now() + DEADLINE_MS;
  let line;
  while (!line && Date.now() < until) {
    await new Promise((resolve) => { setTimeout(resolve, 50); });
    const lines = readFileSync(log, 'utf8').split('\n').slice(0, -1).map((one) => JSON.parse(one));
    line = lines.find(({ target }) => target === '/ws');
  }
  expect('a WebSocket on a stream of HTTP/2 in the access log', line?.version === 'HTTP/2.0' && line.status === 200, line);
  return `WebSocket on a stream of h2: ${TEXTS.length} messages back`;
}

// Runs in the page.
function events() {
  return new Promise((resolve, reject) => {
    const source = new EventSource('/live');
    const seen = [];
    source.onmessage = ({ data }) => { seen.push(data); if (seen.length === 3) { source.close(); resolve(seen); } };
    source.onerror = () => reject(new Error('the event stream failed'));
  });
}

async function sse(page) {
  const seen = await page.evaluate(events);
  expect('three events with JSON', seen.every((data) => typeof JSON.parse(data) === 'object'), seen);
  return 'three server-sent events';
}

async function grpc(page) {
  const bundle = buildSync({ entryPoints: ['calls.mjs'], bundle: true, format: 'iife', write: false, logLevel: 'error' });
  await page.addScriptTag({ content: bundle.outputFiles[0].text });
  const found = await page.evaluate(() => globalThis.callAll());
  for (const [format, calls] of Object.entries(found)) {
    expect(`a greeting by ${format}`, calls.answer === 'Hello, Jörg 😀!', calls);
    expect(`a refusal by ${format}`, calls.refused === '3: name: expected some text, found none', calls);
  }
  const { streamed, code } = found.text;
  expect('a stream of greetings until its deadline', streamed.length >= 2 && streamed.every((text) => text === 'Hello, you!') && code === 4, found.text);
  return `grpc-web: unary by text and binary, ${streamed.length} streamed replies until the deadline`;
}

async function main({ name, executable, origin, log }) {
  const isFirefox = name === 'Firefox';
  const browser = await puppeteer.launch({
    browser: isFirefox ? 'firefox' : 'chrome',
    executablePath: executable,
    acceptInsecureCerts: true,
    args: !isFirefox && userInfo().uid === 0 ? ['--no-sandbox'] : [],
  });
  try {
    const version = await browser.version();
    const page = await browser.newPage();
    page.setDefaultTimeout(DEADLINE_MS);
    console.log(`${version}: ${await protocol(page, origin)}`);
    console.log(`${version}: ${await socket(page, log)}`);
    console.log(`${version}: ${await sse(page)}`);
    console.log(`${version}: ${await grpc(page)}`);
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
