// The npm SDK, as it is, against our server: `node sessions.mjs URL`. Each line of a run is asserted; the first that is
// otherwise ends it with exit code 1.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Centrifuge } from 'centrifuge';
import * as binary from 'centrifuge/build/protobuf';
import WebSocket from 'ws';

const url = process.argv[2];
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

async function sessions(name, { Client, encode, decode }) {
  const channel = `recovery:${name}`;
  const client = () => new Client(url, { websocket: WebSocket });
  const [writer, reader] = [client(), client()];
  writer.connect();
  reader.connect();
  const [me] = await Promise.all([next(writer, 'connected'), next(reader, 'connected')]);

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

for (const [name, format] of Object.entries(formats)) await sessions(name, format);
process.exit(0);
