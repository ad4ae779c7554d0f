// The npm SDK, as it is, against our server on each of its transports, and listeners that are no SDK: `node sessions.mjs
// HOST:PORT`. Each line of a run is asserted; the first that is otherwise ends it with exit code 1.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Centrifuge } from 'centrifuge';
import * as binary from 'centrifuge/build/protobuf';
import { EventSource } from 'eventsource';
import WebSocket from 'ws';

const host = process.argv[2];
const GUARD = 30_000;

/** The next event of a client or a subscription. */
const next = (source, event) => {
  const signal = AbortSignal.timeout(GUARD);
  return once(source, event, { signal }).then(([value]) => value);
};

/** As a JSON value, whatever the format carries. */
const formats = {
  json: { Client: Centrifuge, encode: (value) => value, decode: (value) => value },
  protobuf: {
    Client: binary.Centrifuge,
    encode: (value) => new TextEncoder().encode(JSON.stringify(value)),
    decode: (bytes) => JSON.parse(new TextDecoder().decode(bytes)),
  },
};

/** By the SDK's names: where each is, and which formats the SDK speaks there. */
const transports = {
  websocket: { endpoint: `ws://${host}/connection/websocket`, speaks: ['json', 'protobuf'] },
  http_stream: { endpoint: `http://${host}/connection/http_stream`, speaks: ['json', 'protobuf'] },
  sse: { endpoint: `http://${host}/connection/sse`, speaks: ['json'] },
};

async function sessions(transport, format) {
  const name = `${transport}-${format}`;
  const { Client, encode, decode } = formats[format];
  const channel = `recovery:${name}`;
  const { endpoint } = transports[transport];
  const options = {
    websocket: WebSocket,
    eventsource: EventSource,
    emulationEndpoint: `http://${host}/emulation`,
  };
  const client = () => new Client([{ transport, endpoint }], options);
  const [writer, reader] = [client(), client()];
  writer.connect();
  reader.connect();
  const [me] = await Promise.all([next(writer, 'connected'), next(reader, 'connected')]);
  assert.equal(me.transport, transport);

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
  assert.deepEqual([decode(data), Number(offset), info.client], [{ price: 1 }, 1, me.client]);
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
  for (const format of speaks) await sessions(transport, format);
}
const late = setTimeout(() => assert.fail('listeners wait for what does not come'), GUARD);
await listeners();
clearTimeout(late);
process.exit(0);
