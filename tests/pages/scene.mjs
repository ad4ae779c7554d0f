// The servers behind the pages: an origin that works, one that responds with 503, a port that refuses, a NATS server, and the programs
// under test with their configuration. Everything listens on loopback, on ports of the kernel.

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const START_MS = 20_000;
const API_KEY = 'pages-api-key';

export const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

const listen = (server) => new Promise((resolve) => { server.listen(0, '127.0.0.1', () => resolve(server.address().port)); });

// A port without a listener.
export async function freePort() {
  const server = net.createServer();
  const port = await listen(server);
  await new Promise((resolve) => { server.close(resolve); });
  return port;
}

// Core NATS, as far as a subscriber needs it: INFO, PONG, and messages on `prices.SYMBOL`.
function natsServer() {
  const sockets = new Set();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {});
    socket.write('INFO {"server_id":"pages","version":"2.10.0","proto":1,"headers":true,"max_payload":1048576}\r\n');
    let number;
    socket.on('data', (bytes) => {
      const text = bytes.toString('latin1');
      const subscribed = /SUB \S+ (\d+)\r\n/.exec(text);
      if (subscribed) number = subscribed[1];
      for (let pings = text.split('PING\r\n').length - 1; pings > 0; pings -= 1) socket.write('PONG\r\n');
    });
    socket.publish = (symbol, data) => {
      if (number) socket.write(`MSG prices.${symbol} ${number} ${data.length}\r\n${data}\r\n`);
    };
  });
  let step = 0;
  const timer = setInterval(() => {
    step += 1;
    for (const socket of sockets) {
      for (const symbol of ['EURUSD', 'GBPUSD', 'USDJPY']) socket.publish(symbol, JSON.stringify({ price: 1 + Math.sin(step / 9) / 100 }));
    }
  }, 50);
  return { server, end() { clearInterval(timer); sockets.forEach((socket) => socket.destroy()); server.close(); } };
}

function certificate(folder, name, days) {
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', String(days),
    '-subj', `/CN=${name}.example`, '-addext', `subjectAltName=DNS:${name}.example,DNS:www.${name}.example`,
    '-keyout', join(folder, `${name}.key`), '-out', join(folder, `${name}.crt`)], { stdio: 'ignore' });
}

// A program that is killed with the scene. `ready` is called until it returns true.
async function program(parts, ready, cwd) {
  const child = spawn(parts[0], parts.slice(1), { cwd, stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  child.stderr.on('data', (bytes) => { log = (log + bytes).slice(-20_000); });
  const end = Date.now() + START_MS;
  for (;;) {
    if (child.exitCode != null) throw new Error(`${parts.join(' ')} exited with ${child.exitCode}:\n${log}`);
    if (await ready().catch(() => false)) return { child, log: () => log };
    if (Date.now() > end) throw new Error(`${parts.join(' ')} did not become ready:\n${log}`);
    await sleep(50);
  }
}

const responds = (url) => async () => (await fetch(url)).status < 500;

// `ringmain run` without a file.
export async function welcome(ringmain) {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const { child } = await program([ringmain, 'run', '--listen', `127.0.0.1:${port}`], responds(`${url}/json`));
  return { url, end: () => child.kill() };
}

// Rules and upstreams that work. `broken` adds those that do not.
function configuration({ gateway, secure, admin, metrics, origin, failing, refusing, nats, broken }) {
  const lines = [
    'listeners:',
    `  web: {address: 127.0.0.1:${gateway}}`,
    `  secure: {address: 127.0.0.1:${secure}, tls: {certificates: [shop, api]}}`,
    `admin: {address: 127.0.0.1:${admin}, metrics: 127.0.0.1:${metrics}}`,
    'certificates:',
    '  shop: {chain: shop.crt, key: shop.key}',
    '  api: {chain: api.crt, key: api.key}',
    'push:',
    '  anonymous: true',
    `  api_key: ${API_KEY}`,
    '  namespaces: {prices: {retention: {publications: 1, time: 1h}, cache: true}}',
    '  nats:',
    `    prices: {servers: 'nats://127.0.0.1:${nats}', subjects: prices.*, channel: 'prices:{2}'}`,
    ...(broken ? [`    orders: {servers: 'nats://127.0.0.1:${refusing}', subjects: orders.>}`] : []),
    'upstreams:',
    `  catalogue: {endpoints: [127.0.0.1:${origin}], health: {active: {path: /health, every: 1s}}}`,
    `  checkout: {endpoints: [127.0.0.1:${origin}${broken ? `, 127.0.0.1:${refusing}` : ''}], balance: round_robin}`,
    ...(broken ? [
      `  payments: {endpoints: [127.0.0.1:${refusing}]}`,
      `  reports: {endpoints: [127.0.0.1:${failing}], health: {active: {path: /health, every: 1s}}}`,
    ] : []),
    'routes:',
    '  live: {rules: [{match: /live, push: {below: /live}}]}',
    '  shop:',
    '    rules:',
    '      - {match: /catalogue, to: catalogue}',
    '      - {match: /checkout, to: checkout, retry: {on: [connect]}}',
    ...(broken ? ['      - {match: /payments, to: payments}', '      - {match: /reports, to: reports}'] : []),
    '  moved: {rules: [{match: /old, redirect: {path: /catalogue}}]}',
    '',
  ];
  return lines.join('\n');
}

// Requests and subscribers, until `end` is called.
function load(gateway, broken) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });
  const streams = [];
  let ended = false;
  const request = (path) => new Promise((resolve) => {
    const sent = http.get({ host: '127.0.0.1', port: gateway, path, agent }, (response) => { response.resume(); response.on('end', resolve); response.on('error', resolve); });
    sent.on('error', resolve);
  });
  const paths = ['/catalogue', '/catalogue/1', '/catalogue/slow', '/checkout', '/old', '/missing', ...(broken ? ['/payments', '/reports'] : [])];
  for (let worker = 0; worker < 4; worker += 1) {
    (async () => {
      for (let round = worker; !ended; round += 1) {
        await request(paths[round % paths.length]);
        await sleep(8 + 6 * Math.sin(Date.now() / 4000));
      }
    })();
  }
  const connect = JSON.stringify({ subs: { 'prices:EURUSD': {}, 'prices:GBPUSD': {} } });
  // Each reconnects as an EventSource does: a source that connects starts a new epoch, and ends the streams of before.
  const subscribe = (client) => {
    if (ended) return;
    const again = () => setTimeout(subscribe, 250, client);
    const stream = http.get({ host: '127.0.0.1', port: gateway, path: `/live/connection/uni_sse?cf_connect=${encodeURIComponent(connect)}`, agent: false }, (response) => {
      response.resume();
      response.on('close', again);
      response.on('error', () => {});
    });
    stream.on('error', (error) => { if (error.code === 'ECONNREFUSED') again(); });
    streams[client] = stream;
  };
  for (let client = 0; client < 40; client += 1) subscribe(client);
  return () => { ended = true; streams.forEach((stream) => stream.destroy()); agent.destroy(); };
}

// A gateway with push and traffic. With `broken` endpoints refuse, a health check fails, a certificate is about to expire, a source is
// not connected, and the last reload was rejected.
export async function gateway(ringmain, broken) {
  const folder = mkdtempSync(join(tmpdir(), 'ringmain-pages-'));
  const origin = http.createServer((request, response) => {
    setTimeout(() => response.end('ok\n'), request.url.endsWith('/slow') ? 40 : 1);
  });
  const failing = http.createServer((_, response) => { response.statusCode = 503; response.end('busy\n'); });
  const nats = natsServer();
  const ports = {
    gateway: await freePort(), secure: await freePort(), admin: await freePort(), metrics: await freePort(), refusing: await freePort(),
    origin: await listen(origin), failing: await listen(failing), nats: await listen(nats.server),
  };
  certificate(folder, 'shop', 90);
  certificate(folder, 'api', broken ? 9 : 365);
  const file = join(folder, 'gateway.yaml');
  const text = configuration({ ...ports, broken });
  writeFileSync(file, text);
  const admin = `http://127.0.0.1:${ports.admin}`;
  const { child, log } = await program([ringmain, 'run', 'gateway.yaml'], responds(`http://127.0.0.1:${ports.gateway}/missing`), folder);
  const stop = load(ports.gateway, broken);
  if (broken) {
    await sleep(1500);
    writeFileSync(file, text.replace('match: /old, redirect', 'match: /old, redirct'));
  }
  return {
    admin, metrics: `http://127.0.0.1:${ports.metrics}`, refusing: ports.refusing, log,
    end() {
      stop();
      child.kill();
      nats.end();
      for (const server of [origin, failing]) { server.closeAllConnections(); server.close(); }
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
