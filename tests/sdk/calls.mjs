// Push by gRPC-Web with the npm package grpc-web, as it is, and by gRPC with grpcurl: `node calls.mjs HOST:PORT GRPCURL`. The server API, by
// grpcurl, with Centrifugo's own definition (api.proto).
//
// The package's transport is XMLHttpRequest: the part that it uses is written here on fetch, for text that is read as it arrives.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import grpcWeb from 'grpc-web';
import protobuf from 'protobufjs';
const { GrpcWebClientBase, MethodDescriptor, MethodType, StatusCode } = grpcWeb;
const [host, grpcurl] = process.argv.slice(2);
const GUARD = 30_000;

globalThis.XMLHttpRequest = class {
  readyState = 0;
  status = 0;
  statusText = '';
  response = null;
  responseText = '';
  responseType = '';
  onreadystatechange = null;
  #fields = {};
  #stop = new AbortController();
  #found = new Headers();

  open(method, url) {
    this.#asked = { method, url };
    this.#is(1);
  }

  setRequestHeader(name, value) {
    this.#fields[name] = value;
  }

  getResponseHeader(name) {
    return this.#found.get(name);
  }

  getAllResponseHeaders() {
    return [...this.#found].map(([name, value]) => `${name}: ${value}\r\n`).join('');
  }

  abort() {
    this.#stop.abort();
  }

  async send(body) {
    const { method, url } = this.#asked;
    try {
      const answer = await fetch(url, { method, headers: this.#fields, body, signal: this.#stop.signal });
      this.#found = answer.headers;
      [this.status, this.statusText] = [answer.status, answer.statusText];
      this.#is(2);
      const pieces = [];
      for await (const piece of answer.body) {
        pieces.push(piece);
        if (this.responseType === '') this.responseText += Buffer.from(piece).toString('latin1');
        this.#is(3);
      }
      const whole = Buffer.concat(pieces);
      this.response = this.responseType === '' ? this.responseText : Uint8Array.from(whole).buffer;
    } catch (error) {
      if (this.#stop.signal.aborted) return;
      this.status = 0;
    }
    this.#is(4);
  }

  #asked = null;

  #is(state) {
    this.readyState = state;
    this.onreadystatechange?.();
  }
};

const root = await protobuf.load('unistream.proto');
const SERVICE = 'centrifugal.centrifugo.unistream.CentrifugoUniStream';
const ConnectRequest = root.lookupType('centrifugal.centrifugo.unistream.ConnectRequest');
const Push = root.lookupType('centrifugal.centrifugo.unistream.Push');
const consume = new MethodDescriptor(
  `/${SERVICE}/Consume`,
  MethodType.SERVER_STREAMING,
  Object,
  Object,
  (asked) => ConnectRequest.encode(ConnectRequest.fromObject(asked)).finish(),
  (bytes) => Push.decode(new Uint8Array(bytes)),
);

const publish = async (channel, data) => {
  const answer = await fetch(`http://${host}/api/publish`, {
    method: 'POST',
    headers: { 'X-API-Key': 'secret' },
    body: JSON.stringify({ channel, data }),
  });
  assert.ok((await answer.json()).result, 'it is published');
};

/** Values in their order, for whoever asks, and for a while. */
function queue() {
  const [waiting, asks] = [[], []];
  const put = (value) => (asks.length > 0 ? asks.shift()(value) : waiting.push(value));
  const take = () =>
    new Promise((resolve, reject) => {
      const guard = setTimeout(() => reject(new Error('nothing came')), GUARD);
      const done = (value) => {
        clearTimeout(guard);
        resolve(value);
      };
      waiting.length > 0 ? done(waiting.shift()) : asks.push(done);
    });
  return { put, take };
}

const data = (push) => JSON.parse(Buffer.from(push.pub.data).toString());

/** grpc-web's own stream; in binary the package hands over what there is at the end alone. */
async function byText() {
  const channel = 'recovery:calls-text';
  const client = new GrpcWebClientBase({ format: 'text' });
  const call = (asked) => {
    const [pushes, end] = [queue(), queue()];
    const stream = client.serverStreaming(`http://${host}${consume.getName()}`, asked, {}, consume);
    stream.on('data', pushes.put);
    stream.on('error', ({ code, message }) => end.put({ code, message }));
    return { pushes, end, stream };
  };
  const { pushes, stream } = call({ subs: { [channel]: {} } });
  const { connect } = await pushes.take();
  assert.ok(connect.client && connect.subs[channel].recoverable);
  for (const price of [1, 2]) await publish(channel, { price });
  const heard = [];
  while (heard.length < 2) {
    const push = await pushes.take();
    if (push.pub) heard.push(push);
  }
  assert.deepEqual(heard.map(data), [{ price: 1 }, { price: 2 }]);
  stream.cancel();

  // Missed publications are part of the connect reply.
  await publish(channel, { price: 3 });
  const { epoch } = connect.subs[channel];
  const again = call({ subs: { [channel]: { recover: true, offset: 2, epoch } } });
  const { connect: back } = await again.pushes.take();
  assert.deepEqual([back.subs[channel].recovered, Number(back.subs[channel].offset)], [true, 2]);
  again.stream.cancel();

  const refused = call({ token: 'no token' });
  assert.deepEqual(await refused.end.take(), {
    code: StatusCode.UNAUTHENTICATED,
    message: 'invalid token (code 3500)',
  });
  console.log('grpc-web, text: all as expected');
}

async function byBinary() {
  const client = new GrpcWebClientBase({ format: 'binary' });
  const end = queue();
  const stream = client.serverStreaming(`http://${host}${consume.getName()}`, { token: 'x' }, {}, consume);
  stream.on('error', ({ code, message }) => end.put({ code, message }));
  assert.deepEqual(await end.take(), { code: StatusCode.UNAUTHENTICATED, message: 'invalid token (code 3500)' });
  // As pages that use fetch read it: frames as they arrive.
  const asked = ConnectRequest.encode(ConnectRequest.fromObject({ subs: { 'recovery:calls-binary': {} } })).finish();
  const frame = Buffer.concat([Buffer.from([0, 0, 0, 0, asked.length]), asked]);
  const answer = await fetch(`http://${host}${consume.getName()}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/grpc-web+proto', 'X-Grpc-Web': '1' },
    body: frame,
  });
  assert.match(answer.headers.get('content-type'), /^application\/grpc-web/);
  const reader = answer.body.getReader();
  let bytes = Buffer.alloc(0);
  const next = async () => {
    for (;;) {
      if (bytes.length >= 5 && bytes.length >= 5 + bytes.readUInt32BE(1)) {
        const length = 5 + bytes.readUInt32BE(1);
        const push = Push.decode(bytes.subarray(5, length));
        bytes = bytes.subarray(length);
        return push;
      }
      const { value, done } = await reader.read();
      assert.ok(!done, 'the stream goes on');
      bytes = Buffer.concat([bytes, value]);
    }
  };
  assert.ok((await next()).connect.client);
  await publish('recovery:calls-binary', { price: 7 });
  let push;
  do push = await next();
  while (!push.pub);
  assert.deepEqual(data(push), { price: 7 });
  await reader.cancel();
  console.log('grpc-web, binary: all as expected');
}

/** Native gRPC over HTTP/2. */
async function byGrpcurl() {
  const call = (asked, more = []) => {
    const args = ['-plaintext', '-proto', 'unistream.proto', ...more, '-d', JSON.stringify(asked), host, `${SERVICE}/Consume`];
    return spawn(grpcurl, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  };
  const channel = 'recovery:calls-native';
  const running = call({ subs: { [channel]: {} } });
  const pushes = queue();
  let text = '';
  createInterface({ input: running.stdout }).on('line', (line) => {
    text += line;
    if (line === '}' || line === '{}') {
      pushes.put(JSON.parse(text));
      text = '';
    }
  });
  assert.ok((await pushes.take()).connect.client);
  await publish(channel, { price: 9 });
  let push;
  do push = await pushes.take();
  while (!push.pub);
  assert.deepEqual(JSON.parse(Buffer.from(push.pub.data, 'base64')), { price: 9 });
  running.kill();
  await once(running, 'close');

  for (const [asked, more, expected] of [
    [{ token: 'no token' }, [], /Code: Unauthenticated\s+Message: invalid token \(code 3500\)/],
    [{ subs: { 'nowhere:a': {} } }, [], /Code: InvalidArgument\s+Message: bad request \(code 3501\)/],
    [{ subs: { [channel]: {} } }, ['-max-time', '1'], /Code: DeadlineExceeded/],
  ]) {
    const refused = call(asked, more);
    let said = '';
    refused.stderr.on('data', (bytes) => (said += bytes));
    await once(refused, 'close');
    assert.match(said, expected);
  }
  console.log('grpcurl: all as expected');
}

/** Calls each method of the server API with Centrifugo's definition. */
async function serverApi() {
  const call = async (method, asked, key = 'secret') => {
    const args = ['-plaintext', '-proto', 'api.proto', '-H', `authorization: apikey ${key}`, '-d', JSON.stringify(asked)];
    const running = spawn(grpcurl, [...args, host, `centrifugal.centrifugo.api.CentrifugoApi/${method}`], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let [out, said] = ['', ''];
    running.stdout.on('data', (bytes) => (out += bytes));
    running.stderr.on('data', (bytes) => (said += bytes));
    const [code] = await once(running, 'close');
    return code === 0 ? JSON.parse(out) : said;
  };
  const base64 = (value) => Buffer.from(JSON.stringify(value)).toString('base64');
  const channel = 'recovery:api';
  const published = await call('Publish', { channel, data: base64({ a: 1 }), tags: { x: 'y' } });
  assert.equal(published.result.offset, '1');
  const { epoch } = published.result;
  const broadcast = await call('Broadcast', { channels: [channel, 'nowhere:a'], data: base64(2) });
  assert.deepEqual(broadcast.result.responses, [
    { result: { offset: '2', epoch } },
    { error: { code: 102, message: 'unknown channel' } },
  ]);
  const history = await call('History', { channel, limit: -1 });
  assert.deepEqual(history.result, {
    publications: [
      { data: base64({ a: 1 }), offset: '1', tags: { x: 'y' } },
      { data: base64(2), offset: '2' },
    ],
    epoch,
    offset: '2',
  });
  assert.deepEqual(await call('Presence', { channel }), { result: {} });
  assert.deepEqual(await call('PresenceStats', { channel }), { result: {} });
  assert.deepEqual(await call('Channels', {}), { result: {} });
  assert.equal((await call('Info', {})).result.nodes.length, 1);
  for (const method of ['Subscribe', 'Unsubscribe']) {
    assert.deepEqual(await call(method, { user: '7', channel }), { result: {} });
  }
  assert.deepEqual(await call('Disconnect', { user: '7' }), { result: {} });
  assert.deepEqual(await call('Refresh', { user: '7', expireAt: '1' }), { result: {} });
  assert.deepEqual(await call('HistoryRemove', { channel }), { result: {} });
  const batch = await call('Batch', {
    commands: [{ publish: { channel, data: base64(3) } }, { presence: { channel: 'nowhere:a' } }, { rpc: { method: 'x' } }],
  });
  assert.deepEqual(batch.replies, [
    { publish: { offset: '3', epoch } },
    { error: { code: 102, message: 'unknown channel' } },
    { error: { code: 104, message: 'method not found' } },
  ]);
  assert.match(await call('Info', {}, 'other'), /Code: Unauthenticated/);
  assert.match(await call('DeviceList', {}), /Code: Unimplemented/);
  console.log('server API, grpcurl with api.proto: all as expected');
}

await byText();
await byBinary();
await byGrpcurl();
await serverApi();
process.exit(0);
