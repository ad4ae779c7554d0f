//! The payloads, by attack.

/// One payload.
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) bytes: &'static [u8],
}

macro_rules! attacks {
    ($($name:literal: $bytes:expr;)+) => {
        &[$(Attack { name: $name, bytes: $bytes }),+]
    };
}

/// A request that follows every payload on the same connection: its response shows where the last message was taken to end.
pub(super) const AFTER: &[u8] = b"GET /after HTTP/1.1\r\nHost: a\r\n\r\n";

pub(super) const ALL: &[Attack] = attacks! {
    // Two framings in one message (RFC 9112 section 6.3).
    "cl.te": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG";
    "te.cl": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\nGET /evil HTTP/1.1\r\n\r\n0\r\n\r\n";
    "cl.cl different": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\nhello";
    "cl.cl list different": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\nhello";
    "cl plus": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello";
    "cl minus": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n";
    "cl hex": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello";
    "cl space inside": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\nhello";
    "cl overflow": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551617\r\n\r\n";
    "cl empty": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n";
    "cl.0 get with body": b"GET /x HTTP/1.1\r\nHost: a\r\nContent-Length: 31\r\n\r\nGET /evil HTTP/1.1\r\nHost: b\r\n\r\n";
    "te twice": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    "te identity": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n";
    "te not last": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n";
    "te gzip, chunked": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n";
    "te xchunked": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n";
    "te tab before value": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n";
    "te vertical tab": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n";
    "te quoted": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n";
    "te parameter": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n";
    "te empty list": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n";
    "te upper case": b"POST /x HTTP/1.1\r\nHost: a\r\nTRANSFER-ENCODING: CHUNKED\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    "te underscore": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n";
    "te in http/1.0": b"POST /x HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    "te space before colon": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n";
    "te folded": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n";
    "te bare lf": b"POST /x HTTP/1.1\r\nHost: a\r\nX: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    "te trailing comma": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked,\r\n\r\n0\r\n\r\n";
    "te semicolon": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;\r\n\r\n0\r\n\r\n";
    "te blank behind": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked \r\n\r\n0\r\n\r\n";
    "te form feed": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0cchunked\r\n\r\n0\r\n\r\n";
    "te nul": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\x00\r\n\r\n0\r\n\r\n";
    "te no-break space": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\xa0chunked\r\n\r\n0\r\n\r\n";
    "te byte above ascii": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \xe3hunked\r\n\r\n0\r\n\r\n";
    "te bare cr": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\rX: y\r\n\r\n0\r\n\r\n";
    "te chunked twice in a list": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n";
    "te identity, chunked": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n";
    "te two fields, unknown last": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n\r\n0\r\n\r\n";
    "te two fields, unknown first": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: cow\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    "te empty": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\nContent-Length: 5\r\n\r\n0\r\n\r\n";
    "te first in the head": b"POST /x HTTP/1.1\r\n Transfer-Encoding: chunked\r\nHost: a\r\n\r\n0\r\n\r\n";
    "te in the name's case": b"POST /x HTTP/1.1\r\nHost: a\r\ntRANSFER-ENCODING: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n";
    "te behind a colon": b"POST /x HTTP/1.1\r\nHost: a\r\n:Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    "te with a dash more": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer--Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n";
    "te.0": b"OPTIONS /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1f\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n";
    "te of a get": b"GET /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1f\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n";
    "cl of a head": b"HEAD /x HTTP/1.1\r\nHost: a\r\nContent-Length: 31\r\n\r\nGET /evil HTTP/1.1\r\nHost: b\r\n\r\n";
    "cl blank before colon": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length : 2\r\n\r\nhi";
    "cl same twice": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi";
    "cl same in a list": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2, 2\r\n\r\nhi";
    "cl zeros first": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 002\r\n\r\nhi";
    "cl exponent": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2e0\r\n\r\nhi";
    "cl arabic digits": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: \xd9\xa2\r\n\r\nhi";
    "cl underscore": b"POST /x HTTP/1.1\r\nHost: a\r\nContent_Length: 2\r\n\r\n";
    "0.cl expect": b"GET /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody";
    "expect unknown": b"POST /x HTTP/1.1\r\nHost: a\r\nExpect: y 100-continue\r\nContent-Length: 4\r\n\r\nbody";
    // Chunks (RFC 9112 section 7.1).
    "chunk size 0x": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n";
    "chunk size plus": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n+2\r\nhi\r\n0\r\n\r\n";
    "chunk size underscore": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\nhi\r\n0\r\n\r\n";
    "chunk size overflow": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000002\r\nhi\r\n0\r\n\r\n";
    "chunk size blank": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2 \r\nhi\r\n0\r\n\r\n";
    "chunk bare lf": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n";
    "chunk extension": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0\r\n\r\n";
    "chunk extension lf": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;\nxx\r\nhi\r\n0\r\n\r\n";
    "chunk longer than said": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhix\r\n0\r\n\r\n";
    "chunk end cr only": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\rx0\r\n\r\n";
    "chunk extension quoted": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a=\"b;c\"\r\nhi\r\n0\r\n\r\n";
    "chunk extension with a line in quotes": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a=\"b\r\nc\"\r\nhi\r\n0\r\n\r\n";
    "chunk extension cr": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a\rb\r\nhi\r\n0\r\n\r\n";
    "chunk extension of the last": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0;a=b\r\n\r\n";
    "chunk size empty": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhi\r\n0\r\n\r\n";
    "chunk size minus": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nhi\r\n0\r\n\r\n";
    "chunk size with zeros": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0000000000000002\r\nhi\r\n0\r\n\r\n";
    "chunk size with many zeros": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000000000000000000002\r\nhi\r\n0\r\n\r\n";
    "last chunk of several zeros": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n000\r\n\r\n";
    "last chunk without its end": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    "trailer transfer-encoding": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n";
    "trailer folded": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: a\r\n b\r\n\r\n";
    "trailer bare lf": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: a\n\r\n";
    "trailer authorization": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nAuthorization: Bearer x\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n";
    "trailer content-length": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n2\r\nhi\r\n0\r\nContent-Length: 9\r\n\r\n";
    "trailer host": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nHost: evil\r\nX-Kept: no\r\n\r\n";
    // Lines and fields (RFC 9112 sections 2.2, 5).
    "bare lf lines": b"GET /x HTTP/1.1\nHost: a\n\n";
    "bare cr in a value": b"GET /x HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n";
    "nul in a value": b"GET /x HTTP/1.1\r\nHost: a\r\nX: b\x00c\r\n\r\n";
    "nul in a name": b"GET /x HTTP/1.1\r\nHost: a\r\nX\x00: b\r\n\r\n";
    "space before colon": b"GET /x HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n";
    "no name": b"GET /x HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n";
    "no colon": b"GET /x HTTP/1.1\r\nHost: a\r\nX\r\n\r\n";
    "first line folded": b"GET /x HTTP/1.1\r\n Host: evil\r\nHost: a\r\n\r\n";
    "folded value": b"GET /x HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n";
    "empty line first": b"\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    "tab before colon": b"GET /x HTTP/1.1\r\nHost: a\r\nX\t: b\r\n\r\n";
    "vertical tab before colon": b"GET /x HTTP/1.1\r\nHost: a\r\nX\x0b: b\r\n\r\n";
    "space in a name": b"GET /x HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n";
    "byte above ascii in a name": b"GET /x HTTP/1.1\r\nHost: a\r\nX\xe9: b\r\n\r\n";
    "control in a value": b"GET /x HTTP/1.1\r\nHost: a\r\nX: b\x08c\r\n\r\n";
    "delete in a value": b"GET /x HTTP/1.1\r\nHost: a\r\nX: b\x7fc\r\n\r\n";
    "cr cr lf": b"GET /x HTTP/1.1\r\r\nHost: a\r\n\r\n";
    "many empty lines first": b"\r\n\r\n\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    "method in small letters": b"get /x HTTP/1.1\r\nHost: a\r\n\r\n";
    "method with a colon": b"GET: /x HTTP/1.1\r\nHost: a\r\n\r\n";
    "trace": b"TRACE /x HTTP/1.1\r\nHost: a\r\nCookie: secret\r\n\r\n";
    "two spaces": b"GET  /x HTTP/1.1\r\nHost: a\r\n\r\n";
    "tab for space": b"GET\t/x HTTP/1.1\r\nHost: a\r\n\r\n";
    "space in target": b"GET /x y HTTP/1.1\r\nHost: a\r\n\r\n";
    "control in target": b"GET /x\x01 HTTP/1.1\r\nHost: a\r\n\r\n";
    "http/0.9": b"GET /x\r\n";
    "http/2.0": b"GET /x HTTP/2.0\r\nHost: a\r\n\r\n";
    "http/1.10": b"GET /x HTTP/1.10\r\nHost: a\r\n\r\n";
    "lower case protocol": b"GET /x http/1.1\r\nHost: a\r\n\r\n";
    "h2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // Whom it is for (RFC 9112 section 3.2).
    "no host": b"GET /x HTTP/1.1\r\n\r\n";
    "two hosts": b"GET /x HTTP/1.1\r\nHost: a\r\nHost: evil\r\n\r\n";
    "host list": b"GET /x HTTP/1.1\r\nHost: a, evil\r\n\r\n";
    "host with path": b"GET /x HTTP/1.1\r\nHost: a/evil\r\n\r\n";
    "host with user": b"GET /x HTTP/1.1\r\nHost: a@evil\r\n\r\n";
    "host port overflow": b"GET /x HTTP/1.1\r\nHost: a:99999\r\n\r\n";
    "host with a blank": b"GET /x HTTP/1.1\r\nHost: a b\r\n\r\n";
    "host empty": b"GET /x HTTP/1.1\r\nHost:\r\n\r\n";
    "host port not a number": b"GET /x HTTP/1.1\r\nHost: a:b\r\n\r\n";
    "host with a query": b"GET /x HTTP/1.1\r\nHost: a?evil\r\n\r\n";
    "host underscore": b"GET /x HTTP/1.1\r\nHost: a_b\r\n\r\n";
    "absolute form with user": b"GET http://evil@a/x HTTP/1.1\r\nHost: a\r\n\r\n";
    "absolute form without path": b"GET http://a?q HTTP/1.1\r\nHost: a\r\n\r\n";
    "network path": b"GET //evil/x HTTP/1.1\r\nHost: a\r\n\r\n";
    "absolute form against host": b"GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n";
    "absolute form of another scheme": b"GET ftp://a/x HTTP/1.1\r\nHost: a\r\n\r\n";
    "authority form": b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n";
    "asterisk without options": b"GET * HTTP/1.1\r\nHost: a\r\n\r\n";
    // Fields between one hop and the next (RFC 9110 section 7.6.1).
    "connection names x-forwarded-for": b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: X-Forwarded-For, X-Real\r\nX-Real: kept?\r\n\r\n";
    "connection names content-length": b"POST /x HTTP/1.1\r\nHost: a\r\nConnection: Content-Length\r\nContent-Length: 2\r\n\r\nhi";
    "connection names host": b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Host\r\n\r\n";
    "forged forwarding": b"GET /x HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.7\r\nX-Real-IP: 6.6.6.8\r\nForwarded: for=6.6.6.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n\r\n";
    "upgrade that nobody allows": b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\n";
    "h2c upgrade": b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    "connection names authorization": b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Authorization, Cookie\r\nAuthorization: Basic YTpi\r\nCookie: a=b\r\n\r\n";
    "connection names everything": b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close, keep-alive, Via, Transfer-Encoding, Upgrade, TE\r\nVia: 1.1 x\r\n\r\n";
    "connection of many": b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z,A1,B1,C1,D1,E1,F1,G1\r\n\r\n";
    "connection keep-alive in http/1.0": b"GET /x HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n";
    "proxy-connection": b"GET /x HTTP/1.1\r\nHost: a\r\nProxy-Connection: keep-alive\r\nKeep-Alive: timeout=5\r\nTE: trailers, gzip\r\n\r\n";
    // Paths that two readers read in two ways (RFC 3986 section 6).
    "dot segments": b"GET /a/../x HTTP/1.1\r\nHost: a\r\n\r\n";
    "dot segments beyond the root": b"GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n";
    "encoded dots": b"GET /a/%2e%2e/x HTTP/1.1\r\nHost: a\r\n\r\n";
    "encoded dots twice": b"GET /a/%252e%252e/x HTTP/1.1\r\nHost: a\r\n\r\n";
    "parameters in a segment": b"GET /a/..;/x HTTP/1.1\r\nHost: a\r\n\r\n";
    "doubled slashes": b"GET //a///x HTTP/1.1\r\nHost: a\r\n\r\n";
    "encoded slash": b"GET /a%2fx HTTP/1.1\r\nHost: a\r\n\r\n";
    "backslash": b"GET /a\\..\\x HTTP/1.1\r\nHost: a\r\n\r\n";
    "encoded backslash": b"GET /a%5c..%5cx HTTP/1.1\r\nHost: a\r\n\r\n";
    "encoded nul": b"GET /a%00x HTTP/1.1\r\nHost: a\r\n\r\n";
    "half an escape": b"GET /a%2 HTTP/1.1\r\nHost: a\r\n\r\n";
    "escape that is none": b"GET /a%zz HTTP/1.1\r\nHost: a\r\n\r\n";
    "encoded line end": b"GET /a%0d%0aX:%20y HTTP/1.1\r\nHost: a\r\n\r\n";
    "dots and slashes, half encoded": b"GET /a/.%2e/%2e./x HTTP/1.1\r\nHost: a\r\n\r\n";
    "encoded slash and dots": b"GET /a/..%2f..%2fx HTTP/1.1\r\nHost: a\r\n\r\n";
    "encoded letters": b"GET /%78%2dy HTTP/1.1\r\nHost: a\r\n\r\n";
    "parameters": b"GET /a;b=c/x;d HTTP/1.1\r\nHost: a\r\n\r\n";
    "byte above ascii in a path": b"GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n";
    "bracket in a path": b"GET /[x] HTTP/1.1\r\nHost: a\r\n\r\n";
    "query of dots": b"GET /x?/../../a HTTP/1.1\r\nHost: a\r\n\r\n";
    "query with escapes": b"GET /x?a=%0d%0a&b=%00 HTTP/1.1\r\nHost: a\r\n\r\n";
    "path alone": b"GET x HTTP/1.1\r\nHost: a\r\n\r\n";
    "fragment": b"GET /x#y HTTP/1.1\r\nHost: a\r\n\r\n";
    "overlong utf-8": b"GET /a%c0%ae%c0%ae/x HTTP/1.1\r\nHost: a\r\n\r\n";
    // Protocols other than HTTP.
    "proxy protocol unasked": b"PROXY TCP4 6.6.6.6 127.0.0.1 1 80\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    "tls to a plain port": b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00";
};

/// An answer of an origin that lies, to GET `/x`; to `/after` it answers properly. `ends`: it closes behind its lie.
pub(super) struct Lie {
    pub(super) name: &'static str,
    pub(super) bytes: &'static [u8],
    pub(super) ends: bool,
}

macro_rules! lies {
    ($($name:literal $ends:literal: $bytes:expr;)+) => {
        &[$(Lie { name: $name, bytes: $bytes, ends: $ends }),+]
    };
}

pub(super) const LIES: &[Lie] = lies! {
    // More than one response (RFC 9112 section 9.2): a response without a request belongs to no client.
    "two answers" false: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    "body of a 204" false: b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    "length of a 204" false: b"HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\npoison";
    "body of a 304" false: b"HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\npoison";
    "more than its length" false: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more";
    "less than its length" true: b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok";
    // Framing that two readers read in two ways (section 6.3).
    "cl.te" false: b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    "two lengths" false: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!";
    "length plus" false: b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok";
    "length overflow" false: b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551618\r\n\r\nok";
    "te unknown" true: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n";
    "te in http/1.0" true: b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    "chunk size plus" true: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+2\r\nok\r\n0\r\n\r\n";
    "chunk size overflow" true: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000002\r\nok\r\n0\r\n\r\n";
    "chunks cut" true: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n";
    "trailer content-length" false: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nContent-Length: 9\r\n\r\n";
    // Heads (section 4).
    "bare lf" false: b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok";
    "space before colon" false: b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok";
    "folded field" false: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\r\n b\r\n\r\nok";
    "nul in a field" false: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\x00b\r\n\r\nok";
    "bare cr in a field" false: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\rSet-Cookie: b\r\n\r\nok";
    "status of two digits" false: b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok";
    "status 000" false: b"HTTP/1.1 000 OK\r\nContent-Length: 2\r\n\r\nok";
    "http/2.0" false: b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok";
    "no protocol" false: b"ok\r\n\r\n";
    "tls alert" true: b"\x15\x03\x01\x00\x02\x02\x28";
    // Interim answers and switches (RFC 9110 sections 15.2, 7.8).
    "interim storm" false: &storm();
    "switch without a request" false: b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\n";
    "upgrade with a 200" false: b"HTTP/1.1 200 OK\r\nConnection: upgrade\r\nUpgrade: foo\r\nContent-Length: 2\r\n\r\nok";
    "interim with a length" false: b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    "interim and gone" true: b"HTTP/1.1 103 Early Hints\r\n\r\n";
    "nothing and gone" true: b"";
    "half a head" true: b"HTTP/1.1 200 OK\r\nContent-Le";
    "half an interim" true: b"HTTP/1.1 100 Contin";
    "chunks of a 204" false: b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    "chunks of a 205" false: b"HTTP/1.1 205 Reset Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    "status 600" false: b"HTTP/1.1 600 ?\r\nContent-Length: 2\r\n\r\nok";
    "status 999" false: b"HTTP/1.1 999 ?\r\nContent-Length: 2\r\n\r\nok";
    "status 099" false: b"HTTP/1.1 099 ?\r\nContent-Length: 2\r\n\r\nok";
    "no reason" false: b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok";
    "control in the reason" false: b"HTTP/1.1 200 O\x01K\r\nContent-Length: 2\r\n\r\nok";
    "te gzip, chunked" true: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    "te chunked twice" true: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    "te blank before colon" true: b"HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    "same length twice" false: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok";
    "set-cookie with a line end" false: b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\n\tc=d\r\nContent-Length: 2\r\n\r\nok";
    // Fields of this hop (section 7.6.1).
    "connection names a field" false: b"HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: a\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok";
    "connection names content-length" false: b"HTTP/1.1 200 OK\r\nConnection: Content-Length\r\nContent-Length: 2\r\n\r\nok";
};

const STORM: usize = 64;
const INTERIM: &[u8] = b"HTTP/1.1 103 Early Hints\r\n\r\n";

/// Interim answers without end.
const fn storm() -> [u8; STORM * INTERIM.len()] {
    let mut all = [0; STORM * INTERIM.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = INTERIM[at % INTERIM.len()];
        at += 1;
    }
    all
}
