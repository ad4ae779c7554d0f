// gnethttp is HTTP/1.1 on one gnet event loop: a small parser of request line and header
// fields, one write for all requests of a read. gnet itself knows no HTTP.
package main

import (
	"bytes"
	"encoding/json"
	"log"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
)

type hello struct {
	Message string `json:"message"`
}

const maxFields = 32

// request is one parsed head; it points into the connection's buffer.
type request struct {
	path   []byte
	fields [maxFields][2][]byte
	count  int
}

type outcome int

const (
	whole outcome = iota
	incomplete
	malformed
)

// parse reads one head from b and returns its length.
func (r *request) parse(b []byte) (int, outcome) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, incomplete
	}
	line, rest, _ := bytes.Cut(b[:end+2], []byte("\r\n"))
	first, last := bytes.IndexByte(line, ' '), bytes.LastIndexByte(line, ' ')
	if first < 0 || last <= first {
		return 0, malformed
	}
	r.path, r.count = line[first+1:last], 0
	for len(rest) > 0 {
		var field []byte
		field, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, found := bytes.Cut(field, []byte(":"))
		if !found || r.count == maxFields {
			return 0, malformed
		}
		r.fields[r.count] = [2][]byte{name, bytes.TrimSpace(value)}
		r.count++
	}
	return end + 4, whole
}

// date is the Date field's value, renewed every half second.
var date atomic.Value

func renewDate() { date.Store(time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")) }

// connection is kept in the gnet connection's context, so that nothing is allocated a request.
type connection struct {
	request request
	out     []byte
}

func (c *connection) appendAnswer() {
	contentType, body := "text/plain", []byte("Hello, World!")
	if string(c.request.path) == "/json" {
		var err error
		if body, err = json.Marshal(&hello{"Hello, World!"}); err != nil {
			log.Fatal(err)
		}
		contentType = "application/json"
	}
	c.out = append(c.out, "HTTP/1.1 200 OK\r\nServer: gnet\r\nContent-Type: "...)
	c.out = append(c.out, contentType...)
	c.out = append(c.out, "\r\nContent-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, "\r\nDate: "...)
	c.out = append(c.out, date.Load().(string)...)
	c.out = append(c.out, "\r\n\r\n"...)
	c.out = append(c.out, body...)
}

type server struct {
	gnet.BuiltinEventEngine
}

func (*server) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.SetContext(&connection{})
	return nil, gnet.None
}

func (*server) OnTraffic(c gnet.Conn) gnet.Action {
	state := c.Context().(*connection)
	data, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	used := 0
	state.out = state.out[:0]
	for used < len(data) {
		n, found := state.request.parse(data[used:])
		if found == malformed {
			return gnet.Close
		}
		if found == incomplete {
			break
		}
		used += n
		state.appendAnswer()
	}
	if _, err = c.Discard(used); err != nil {
		return gnet.Close
	}
	if _, err = c.Write(state.out); err != nil {
		return gnet.Close
	}
	return gnet.None
}

func main() {
	renewDate()
	go func() {
		for range time.Tick(500 * time.Millisecond) {
			renewDate()
		}
	}()
	address := "tcp://127.0.0.1:" + os.Getenv("PORT")
	log.Fatal(gnet.Run(&server{}, address, gnet.WithMulticore(false), gnet.WithNumEventLoop(1)))
}
