// Clients of the npm SDK for kill.py: reads a line with the clients, then a request of each line ("progress", "report").
import { createHash } from 'node:crypto';
import { createInterface } from 'node:readline';
import { Centrifuge } from 'centrifuge';
import * as binary from 'centrifuge/build/protobuf';
import { EventSource } from 'eventsource';
import WebSocket from 'ws';

const FAULTS = 100;
const faults = [];
const counts = { connects: 0, recovered: 0, publications: 0, errors: 0, deltas: 0 };
const subscriptions = [];
const filters = [
  { key: 'kind', cmp: 'eq', val: 'a' },
  { op: 'or', nodes: [{ key: 'kind', cmp: 'eq', val: 'b' }, { key: 'number', cmp: 'gt', val: '50' }] },
];

const fault = (text) => {
  if (faults.length < FAULTS) faults.push(text);
};

function subscribe(client, name, [channel, option, filter], decode) {
  const options = { minResubscribeDelay: 100, maxResubscribeDelay: 2000 };
  if (option === 'delta') options.delta = 'fossil';
  if (filter >= 0) options.tagsFilter = filters[filter];
  const subscription = client.newSubscription(channel, options);
  const entry = { subscription, numbers: [], last: 0, isDelta: option === 'delta' };
  subscriptions.push(entry);
  subscription.on('subscribed', ({ wasRecovering, recovered }) => {
    if (recovered) counts.recovered++;
    if (wasRecovering && !recovered) fault(`${name} ${channel}: not recovered after ${entry.last}`);
  });
  subscription.on('unsubscribed', ({ code, reason }) => fault(`${name} ${channel}: unsubscribed with ${code} ${reason}`));
  subscription.on('error', () => counts.errors++);
  subscription.on('publication', (publication) => {
    counts.publications++;
    const { n, text, sum } = decode(publication.data);
    if (createHash('sha1').update(`${channel}\n${n}\n${text}`).digest('hex') !== sum) fault(`${name} ${channel}: the data of ${n} is wrong`);
    if (n <= entry.last) fault(`${name} ${channel}: ${n} after ${entry.last}`);
    entry.numbers.push(n);
    entry.last = n;
  });
  subscription.subscribe();
}

function start({ host, clients }) {
  clients.forEach(({ transport, format, subscriptions: wanted }, index) => {
    const Client = format === 'json' ? Centrifuge : binary.Centrifuge;
    const decode = format === 'json' ? (data) => data : (data) => JSON.parse(new TextDecoder().decode(data));
    const scheme = transport === 'websocket' ? 'ws' : 'http';
    const client = new Client([{ transport, endpoint: `${scheme}://${host}/connection/${transport}` }], {
      websocket: WebSocket,
      eventsource: EventSource,
      emulationEndpoint: `http://${host}/emulation`,
      minReconnectDelay: 100,
      maxReconnectDelay: 2000,
    });
    const name = `js ${transport} ${format} ${index}`;
    client.on('connected', () => counts.connects++);
    client.on('disconnected', ({ code, reason }) => fault(`${name}: disconnected with ${code} ${reason}`));
    client.on('error', () => counts.errors++);
    for (const each of wanted) subscribe(client, name, each, decode);
    client.connect();
  });
}

const requests = {
  progress: () => subscriptions.map(({ subscription, last }) => [subscription.state === 'subscribed', last]),
  report: () => {
    counts.deltas = 0;
    for (const { subscription, isDelta } of subscriptions) {
      if (isDelta) counts.deltas += subscription.deltaStats().numDeltaPayloads;
    }
    return { faults, counts, numbers: subscriptions.map(({ numbers }) => numbers) };
  },
};

const lines = createInterface({ input: process.stdin });
let isStarted = false;
lines.on('line', (line) => {
  const message = JSON.parse(line);
  if (!isStarted) {
    isStarted = true;
    start(message);
  } else {
    process.stdout.write(`${JSON.stringify(requests[message]())}\n`);
  }
});
lines.on('close', () => process.exit(0));
