// The unchanged npm SDK against our server on each of its transports, and clients without an SDK: `node sessions.mjs HOST:PORT`. The first
// failed assertion ends the run with exit code 1.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { Centrifuge } from 'centrifuge';
import * as binary from 'centrifuge/build/protobuf';
import { EventSource } from 'eventsource';
import WebSocket from 'ws';
import { connections, StreamSocket } from './streams.mjs';

const host = process.argv[2];
const GUARD = 30_000;

/** The next event of a client or a subscription. */
const next = (source, event) => {
  const signal = AbortSignal.timeout(GUARD);
  return once(source, event, { signal }).then(([value]) => value);
};

/** The same, but errors before it do not reject the promise. */
const later = (source, event) =>
  new Promise((resolve, reject) => {
    const guard = setTimeout(() => reject(new Error(`expected the event ${event}, received none`)), GUARD);
    source.once(event, (value) => {
      clearTimeout(guard);
      resolve(value);
    });
  });

/** A token as an application signs it, by the secret of `sdk_server`. */
const sign = (claims) => {
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const message = `${encode({ alg: 'HS256', typ: 'JWT' })}.${encode(claims)}`;
  const signature = createHmac('sha256', 'the secret of tests, which is none').update(message);
  return `${message}.${signature.digest('base64url')}`;
};

/** JSON values in each format. */
const formats = {
  json: { Client: Centrifuge, encode: (value) => value, decode: (value) => value },
  protobuf: {
    Client: binary.Centrifuge,
    encode: (value) => new TextEncoder().encode(JSON.stringify(value)),
    decode: (bytes) => JSON.parse(new TextDecoder().decode(bytes)),
  },
};

/** By the SDK's names: the endpoint of each, and the formats that the SDK supports there. */
const transports = {
  websocket: { endpoint: `ws://${host}/connection/websocket`, speaks: ['json', 'protobuf'] },
  http_stream: { endpoint: `http://${host}/connection/http_stream`, speaks: ['json', 'protobuf'] },
  sse: { endpoint: `http://${host}/connection/sse`, speaks: ['json'] },
  websocket_http2: {
    endpoint: `ws://${host}/connection/websocket`,
    speaks: ['json', 'protobuf'],
    by: 'websocket',
    socket: StreamSocket,
  },
};

async function sessions(transport, format) {
  const name = `${transport}-${format}`;
  const { Client, encode, decode } = formats[format];
  const channel = `recovery:${name}`;
  const { endpoint, by = transport, socket = WebSocket } = transports[transport];
  const options = {
    websocket: socket,
    eventsource: EventSource,
    emulationEndpoint: `http://${host}/emulation`,
  };
  const client = () => new Client([{ transport: by, endpoint }], options);
  const [writer, reader] = [client(), client()];
  writer.connect();
  reader.connect();
  const [me] = await Promise.all([next(writer, 'connected'), next(reader, 'connected')]);
  assert.equal(me.transport, by);

  const heard = reader.newSubscription(channel, { joinLeave: true });
  heard.subscribe();
  assert.equal((await next(heard, 'subscribed')).recoverable, true);
  const said = writer.newSubscription(channel);
  const joined = new Promise((resolve) => {
    heard.on('join', ({ info }) => info.client === me.client && resolve());
  });
  said.subscribe();
  await Promise.all([next(said, 'subscribed'), joined]);

  const publication = next(heard, 'publication');
  await said.publish(encode({ price: 1 }));
  const { data, offset, info } = await publication;
  assert.deepEqual([decode(data), Number(offset), info.client, info.user], [{ price: 1 }, 1, me.client, '']);
  const { numClients, numUsers } = await writer.presenceStats(`recovery:empty-${name}`);
  assert.deepEqual([numClients, numUsers], [0, 0]);
  if (by === 'websocket') await strictMode(writer, name);
  const { publications } = await said.history({ limit: 10 });
  assert.equal(publications.length, 1);
  assert.equal(Object.keys((await said.presence()).clients).length, 2);
  assert.equal((await said.presenceStats()).numClients, 2);

  // Two are missed, and had when it comes back.
  reader.disconnect();
  for (const price of [2, 3]) await said.publish(encode({ price }));
  const prices = [];
  const all = new Promise((resolve) => {
    heard.on('publication', (missed) => prices.push(decode(missed.data).price) === 2 && resolve());
  });
  reader.connect();
  const again = await next(heard, 'subscribed');
  assert.deepEqual([again.wasRecovering, again.recovered], [true, true]);
  await all;
  assert.deepEqual(prices, [2, 3]);

  said.unsubscribe();
  await assert.rejects(writer.rpc('nothing', encode({})), { code: 108 });
  writer.disconnect();
  reader.disconnect();
  console.log(`${name}: all as expected`);
}

/** As React's StrictMode does with an effect: it is subscribed, and stays so. */
async function strictMode(client, name) {
  for (let round = 0; round < 20; round++) {
    const strict = client.newSubscription(`recovery:strict-${name}-${round}`);
    strict.subscribe();
    strict.unsubscribe();
    strict.subscribe();
    await strict.ready(GUARD);
    assert.equal((await strict.presenceStats()).numClients, 1);
    assert.equal(strict.state, 'subscribed', `round ${round}`);
    strict.unsubscribe();
    client.removeSubscription(strict);
  }
}

/** By tokens: one that has expired, one that is about to, private channels, one that the server subscribes to. */
/** Deltas, filters by tags, and numbers in place of names, by the options of the SDK. */
async function features(transport, format) {
  const name = `${transport}-${format}`;
  const { Client, encode, decode } = formats[format];
  const { endpoint, by = transport, socket = WebSocket } = transports[transport];
  const options = { websocket: socket, eventsource: EventSource, emulationEndpoint: `http://${host}/emulation` };
  const client = new Client([{ transport: by, endpoint }], options);
  client.connect();
  await next(client, 'connected');
  const publish = async (channel, data, tags = {}) => {
    const answer = await fetch(`http://${host}/api/publish`, {
      method: 'POST',
      headers: { 'X-API-Key': 'secret' },
      body: JSON.stringify({ channel, data, tags }),
    });
    assert.ok((await answer.json()).result, 'it is published');
  };
  const collect = (subscription, count) =>
    new Promise((resolve) => {
      const all = [];
      subscription.on('publication', ({ data }) => all.push(decode(data)) === count && resolve(all));
    });

  const state = (number) => ({ number, text: 'Größe '.repeat(50) });
  const changing = client.newSubscription(`delta:${name}`, { delta: 'fossil' });
  changing.subscribe();
  await next(changing, 'subscribed');
  const states = collect(changing, 4);
  for (const number of [1, 2, 3, 4]) await publish(`delta:${name}`, state(number));
  assert.deepEqual(await states, [1, 2, 3, 4].map(state));
  const { numFullPayloads, numDeltaPayloads } = changing.deltaStats();
  assert.deepEqual([numFullPayloads, numDeltaPayloads], [1, 3]);
  // Missed publications are part of the reply, and the next one is a delta from the last of these.
  changing.unsubscribe();
  for (const number of [5, 6]) await publish(`delta:${name}`, state(number));
  const missed = collect(changing, 3);
  changing.subscribe();
  assert.equal((await next(changing, 'subscribed')).recovered, true);
  await publish(`delta:${name}`, state(7));
  assert.deepEqual(await missed, [5, 6, 7].map(state));

  const filtered = client.newSubscription(`recovery:tags-${name}`, {
    tagsFilter: { op: 'or', nodes: [{ key: 'ticker', cmp: 'eq', val: 'BTC' }, { key: 'price', cmp: 'gt', val: '9.5' }] },
  });
  filtered.subscribe();
  await next(filtered, 'subscribed');
  const matching = collect(filtered, 2);
  await publish(`recovery:tags-${name}`, 1, { ticker: 'ETH', price: '9' });
  await publish(`recovery:tags-${name}`, 2, { ticker: 'BTC' });
  await publish(`recovery:tags-${name}`, 3, { ticker: 'ETH', price: '10' });
  assert.deepEqual(await matching, [2, 3]);

  // In Protobuf the SDK compares numbers by identity, and they are objects where the package `long` is installed, as here.
  if (format === 'json') {
    const compact = client.newSubscription(`compact:${name}`);
    compact.subscribe();
    await next(compact, 'subscribed');
    const numbered = collect(compact, 1);
    await publish(`compact:${name}`, 7);
    assert.deepEqual(await numbered, [7]);
  }
  client.disconnect();
  console.log(`${name}: deltas, filters and numbers as expected`);
}

async function tokens(transport, format) {
  const user = `${transport}-${format}`;
  const { Client, encode, decode } = formats[format];
  const now = Math.floor(Date.now() / 1000);
  const ends = [now - 100, now + 3, now + 600];
  let shown = 0;
  const { endpoint, by = transport, socket = WebSocket } = transports[transport];
  const client = new Client([{ transport: by, endpoint }], {
    websocket: socket,
    eventsource: EventSource,
    emulationEndpoint: `http://${host}/emulation`,
    getToken: async () => sign({ sub: user, exp: ends[Math.min(shown++, 2)], info: { name: user } }),
  });
  const personal = later(client, 'subscribed');
  const connected = later(client, 'connected');
  client.connect();
  await connected;
  assert.equal(shown, 2, 'the first one has expired, which the SDK is told');
  assert.equal((await personal).channel, `personal:#${user}`);

  const channel = `$recovery:${user}`;
  const denied = client.newSubscription(`${channel}-denied`);
  const refused = later(denied, 'unsubscribed');
  denied.subscribe();
  assert.equal((await refused).code, 103);
  let asked = 0;
  const own = client.newSubscription(channel, {
    getToken: async () => sign({ sub: user, channel, exp: ends[Math.min(asked++, 2)] }),
  });
  const subscribed = later(own, 'subscribed');
  own.subscribe();
  await subscribed;
  assert.equal(asked, 2, 'as with the connection');
  const publication = later(own, 'publication');
  await own.publish(encode({ price: 1 }));
  const { info } = await publication;
  assert.deepEqual([info.user, decode(info.connInfo)], [user, { name: user }]);

  // Sent to the user's own channel by the application; what is about to expire is refreshed meanwhile, by both.
  const told = later(client, 'publication');
  const api = (method, body) =>
    fetch(`http://${host}/api/${method}`, {
      method: 'POST',
      headers: { 'X-API-Key': 'secret', 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    }).then((answer) => answer.json());
  await api('publish', { channel: `personal:#${user}`, data: { hello: user } });
  assert.deepEqual(decode((await told).data), { hello: user });
  const end = Date.now() + GUARD;
  while (shown < 3 || asked < 3) {
    assert.ok(Date.now() < end, 'the SDK gets another token in time');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const again = later(own, 'publication');
  await own.publish(encode({ price: 2 }));
  assert.deepEqual(decode((await again).data), { price: 2 });
  assert.equal(client.state, 'connected');

  const gone = later(client, 'disconnected');
  assert.deepEqual(await api('disconnect', { user }), { result: { num_clients: 1 } });
  assert.equal((await gone).code, 3503);
  console.log(`${user}: tokens as expected`);
}

/** A page's `EventSource`, and what others read: they listen to what an SDK publishes. */
async function listeners() {
  const connect = JSON.stringify({ subs: { 'recovery:listeners': {} } });
  const queued = (source) => {
    const [waiting, asks] = [[], []];
    source.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      asks.length > 0 ? asks.shift()(message) : waiting.push(message);
    };
    return () => new Promise((resolve) => (waiting.length > 0 ? resolve(waiting.shift()) : asks.push(resolve)));
  };
  const events = new EventSource(`http://${host}/connection/uni_sse?cf_connect=${encodeURIComponent(connect)}`);
  const event = queued(events);
  const socket = new WebSocket(`ws://${host}/connection/uni_websocket`);
  const frame = queued(socket);
  socket.on('open', () => socket.send(connect));
  const answer = await fetch(`http://${host}/connection/uni_http_stream`, { method: 'POST', body: connect });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  const line = async () => {
    while (!text.includes('\n')) {
      const { value, done } = await reader.read();
      assert.ok(!done, 'the stream goes on');
      text += value;
    }
    const end = text.indexOf('\n');
    const found = JSON.parse(text.slice(0, end));
    text = text.slice(end + 1);
    return found;
  };
  for (const messages of [event, frame, line]) {
    const { connect: told } = await messages();
    assert.ok(told.client && told.subs['recovery:listeners'].recoverable);
  }

  const writer = new Centrifuge(transports.websocket.endpoint, { websocket: WebSocket });
  writer.connect();
  await writer.publish('recovery:listeners', { price: 7 });
  for (const messages of [event, frame, line]) {
    let push;
    // Those who listen are told of each other, too.
    do push = await messages();
    while (push.join);
    assert.deepEqual(push.pub.data, { price: 7 });
  }
  events.close();
  socket.close();
  await reader.cancel();
  writer.disconnect();

  // Whoever is refused for good is not to come back.
  const refused = new EventSource(`http://${host}/connection/uni_sse?cf_connect={"token":"x"}`);
  await new Promise((resolve) => (refused.onerror = resolve));
  assert.equal(refused.readyState, EventSource.CLOSED);
  console.log('listeners: all as expected');
}

for (const [transport, { speaks }] of Object.entries(transports)) {
  for (const format of speaks) {
    await sessions(transport, format);
    await tokens(transport, format);
    await features(transport, format);
  }
}
assert.equal(connections(), 1, 'all WebSockets of HTTP/2 are streams of one connection');
const late = setTimeout(() => assert.fail('listeners wait for what does not come'), GUARD);
await listeners();
clearTimeout(late);
process.exit(0);
