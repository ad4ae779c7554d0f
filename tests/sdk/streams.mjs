// WebSockets on streams of HTTP/2 (RFC 8441) in Node: its own HTTP/2, which is nghttp2, carries what the package ws makes of frames.
import { connect } from 'node:http2';
import WebSocket from 'ws';

const sessions = new Map();

/** One connection for all sockets of an origin, once the server has said that it may carry them. */
const session = (origin) => {
  if (!sessions.has(origin)) {
    sessions.set(
      origin,
      new Promise((resolve, reject) => {
        const opened = connect(origin);
        opened.on('error', reject);
        opened.on('remoteSettings', ({ enableConnectProtocol }) => {
          if (enableConnectProtocol) resolve(opened);
          else reject(new Error('the server takes no extended CONNECT'));
        });
        opened.unref();
      }),
    );
  }
  return sessions.get(origin);
};

/** For the SDK in place of the one that opens a connection for each. */
export class StreamSocket extends WebSocket {
  constructor(address, protocols = []) {
    super(null, undefined, { autoPong: true, closeTimeout: 30_000 });
    const { host, pathname, search } = new URL(address);
    const names = [protocols].flat().join(', ');
    // What has no address counts as a server's to ws, and servers mask nothing.
    this._isServer = false;
    session(`http://${host}`)
      .then((opened) => {
        const stream = opened.request({
          ':method': 'CONNECT',
          ':protocol': 'websocket',
          ':path': pathname + search,
          'sec-websocket-version': '13',
          ...(names && { 'sec-websocket-protocol': names }),
        });
        stream.on('error', (error) => this.emit('error', error));
        stream.on('response', ({ ':status': status, 'sec-websocket-protocol': protocol = '' }) => {
          if (status !== 200) return stream.destroy(new Error(`expected 200, found ${status}`));
          this._protocol = protocol;
          this.setSocket(stream, Buffer.alloc(0), { maxPayload: 0, skipUTF8Validation: false, allowSynchronousEvents: true });
        });
      })
      .catch((error) => this.emit('error', error));
  }
}

/** How many connections there are for all of them. */
export const connections = () => sessions.size;
