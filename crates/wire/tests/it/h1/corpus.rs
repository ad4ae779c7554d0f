//! Messages, valid and not, that the laws are checked on. The rules' own tables are elsewhere.

use ringmain_wire::h1::Method;

/// What clients send.
pub(crate) const REQUESTS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "\r\nGET /x?y HTTP/1.1\r\nHost: a:80\r\nAccept: */*\r\n\r\n",
    "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\nGET /2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3 ;e=\"f\"\r\nyou\r\n0\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0;x\r\nSum: 1\r\nX:\r\n\r\nGET",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nLong: 0123456789abcdef\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nHost: b\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;0123456789abcdefghij\r\nx\r\n0\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;234567890\r\nx\r\n1;234567890\r\ny\r\n0\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n19\r\n0123456789012345678901234\r\n0\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloo\r\n0\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX : y\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n012345678901234567890123456789",
    "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "GET http://b/ HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nLong: 0123456789012345678901234567890123456789012345678901234567890123456789012345\r\n\r\n",
    "GET /0123456789012345678901234567890123456789 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /0123456789012345678901234567890123456789012345678901234567890123456789",
    "GET / HTTP/1.1\nHost: a\n\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n\rX: y\r\n\r\n",
    "GET / HTTP/3.0\r\n\r\n",
    "GET\r\n\r\n",
    "\rGET / HTTP/1.1\r\n\r\n",
    "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\n",
];

/// What servers send, by the method of the request.
pub(crate) const RESPONSES: &[(Method<'static>, &str)] = &[
    (
        Method::Get,
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 204 No Content\r\n\r\n",
    ),
    (Method::Get, "HTTP/1.1 200 OK\r\n\r\nuntil the connection closes"),
    (Method::Get, "HTTP/1.0 200 OK\r\nServer: x\r\n\r\nuntil"),
    (
        Method::Get,
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    ),
    (
        Method::Head,
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200\r\n\r\n",
    ),
    (Method::Get, "HTTP/1.1 304 \r\nContent-Length: 5\r\n\r\n"),
    (
        Method::Get,
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    ),
    (Method::Get, "\r\nHTTP/1.1 200 OK\r\n\r\n"),
    (Method::Get, "HTTP/1.1 20 OK\r\n\r\n"),
    (Method::Get, "HTTP/1.1 200 OK\nA: b\n\n"),
    (
        Method::Get,
        "HTTP/1.1 200 0123456789012345678901234567890123456789\r\n\r\n",
    ),
];
