// Node's own http module, one process.
'use strict';
const http = require('http');

const answer = (response, type, body) => {
  response.setHeader('Server', 'node');
  response.setHeader('Content-Type', type);
  response.setHeader('Content-Length', Buffer.byteLength(body));
  response.end(body);
};

http.createServer((request, response) => {
  if (request.url === '/json') answer(response, 'application/json', JSON.stringify({ message: 'Hello, World!' }));
  else answer(response, 'text/plain', 'Hello, World!');
}).listen({ port: Number(process.env.PORT), host: '127.0.0.1', backlog: 4096 });
