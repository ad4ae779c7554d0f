// What runs in the page: grpc-web from npm, bundled, asks examples/grpc.rs. Messages are written by hand: one field of text.

import grpcWeb from 'grpc-web';

const { GrpcWebClientBase, MethodDescriptor, MethodType } = grpcWeb;

class Text {
  constructor(text = '') {
    this.text = text;
  }
}

const encode = ({ text }) => {
  const bytes = new TextEncoder().encode(text);
  return bytes.length === 0 ? new Uint8Array() : Uint8Array.of(0x0a, bytes.length, ...bytes);
};

const decode = (bytes) => new Text(new TextDecoder().decode(new Uint8Array(bytes).slice(2)));

const method = (name, kind) => new MethodDescriptor(`/demo.Greeter/${name}`, kind, Text, Text, encode, decode);

// What each call comes to: {format: {answer, refused, streamed, code}}.
globalThis.callAll = async () => {
  const found = {};
  for (const format of ['text', 'binary']) {
    const client = new GrpcWebClientBase({ format });
    const ask = (text) => client.unaryCall(`${location.origin}/demo.Greeter/Greet`, new Text(text), {}, method('Greet', MethodType.UNARY));
    const answer = (await ask('Jörg 😀')).text;
    const refused = await ask('').then(() => 'no error', ({ code, message }) => `${code}: ${message}`);
    const streamed = [];
    // By XMLHttpRequest streams are for text alone.
    const code = format === 'binary' ? null : await new Promise((resolve) => {
      const metadata = { deadline: String(Date.now() + 900) };
      const stream = client.serverStreaming(`${location.origin}/demo.Greeter/Repeat`, new Text('you'), metadata, method('Repeat', MethodType.SERVER_STREAMING));
      let last = null;
      stream.on('data', ({ text }) => streamed.push(text));
      stream.on('status', (status) => { last = status.code; });
      stream.on('error', (error) => resolve(error.code));
      stream.on('end', () => resolve(last));
    });
    found[format] = { answer, refused, streamed, code };
  }
  return found;
};
