// The shop's servers in Go, for bench/shop.py: one program, in several parts.
//
//	backend http NAME ADDRESS        HTTP; unix:PATH is a Unix socket
//	backend https NAME ADDRESS FOLDER  HTTP over TLS, for clients with a certificate
//	backend mail NAME ADDRESS FOLDER   a PROXY protocol header, then TLS, then a greeting that names the client
//	backend tcp NAME ADDRESS           bytes come back in capital letters
//
// HTTP is answered with an account of the request as JSON. A query may ask for something else: `status=503` for that
// status, `once=KEY` for it only the first time, `reset=1` for no answer at all, `wait=250ms` for a late one. A POST to
// /control?healthy=false has /healthz say so from then on; GET /control tells what was seen.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// account is what the answer says of a request.
type account struct {
	Server  string              `json:"server"`
	Method  string              `json:"method"`
	URL     string              `json:"url"`
	Host    string              `json:"host"`
	Headers map[string][]string `json:"headers"`
	Bytes   int64               `json:"bytes"`
	Client  string              `json:"client"`
}

type backend struct {
	name    string
	mutex   sync.Mutex
	seen    int
	canary  int
	healthy bool
	done    map[string]bool
}

func main() {
	if len(os.Args) < 4 {
		log.Fatal("expected: backend http|https|mail|tcp NAME ADDRESS [FOLDER]")
	}
	kind, name, address := os.Args[1], os.Args[2], os.Args[3]
	listener := listen(address)
	switch kind {
	case "http":
		log.Fatal(http.Serve(listener, newBackend(name)))
	case "https":
		settings := secured(os.Args[4], "payment")
		settings.ClientAuth = tls.RequireAndVerifyClientCert
		settings.ClientCAs = authorities(os.Args[4] + "/gateway.crt")
		settings.NextProtos = []string{"http/1.1"}
		log.Fatal(http.Serve(tls.NewListener(listener, settings), newBackend(name)))
	case "mail":
		settings := secured(os.Args[4], "mail")
		each(listener, func(connection net.Conn) { greet(connection, settings) })
	case "tcp":
		each(listener, shout)
	default:
		log.Fatalf("expected http, https, mail or tcp, found %q", kind)
	}
}

func newBackend(name string) *backend {
	return &backend{name: name, healthy: true, done: map[string]bool{}}
}

func listen(address string) net.Listener {
	network := "tcp"
	if path, isUnix := strings.CutPrefix(address, "unix:"); isUnix {
		network, address = "unix", path
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func secured(folder, name string) *tls.Config {
	certificate, err := tls.LoadX509KeyPair(folder+"/"+name+".crt", folder+"/"+name+".key")
	if err != nil {
		log.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}}
}

func authorities(path string) *x509.CertPool {
	pem, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		log.Fatalf("no certificate in %s", path)
	}
	return pool
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
		b.health(w)
	case "/control":
		b.control(w, r)
	default:
		b.answer(w, r)
	}
}

func (b *backend) health(w http.ResponseWriter) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if !b.healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (b *backend) control(w http.ResponseWriter, r *http.Request) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if r.Method == http.MethodPost {
		b.healthy = r.URL.Query().Get("healthy") != "false"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"server": b.name, "seen": b.seen, "canary": b.canary})
}

func (b *backend) answer(w http.ResponseWriter, r *http.Request) {
	length, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return
	}
	query := r.URL.Query()
	if pause, err := time.ParseDuration(query.Get("wait")); err == nil {
		time.Sleep(pause)
	}
	if query.Get("reset") != "" {
		panic(http.ErrAbortHandler)
	}
	client := r.RemoteAddr
	if r.TLS != nil {
		client = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Server", "backend")
	w.Header().Set("X-Backend", b.name)
	w.WriteHeader(b.status(r))
	_ = json.NewEncoder(w).Encode(account{b.name, r.Method, r.URL.String(), r.Host, r.Header, length, client})
}

// status counts a request and says what it is answered with.
func (b *backend) status(r *http.Request) int {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.seen++
	if r.Header.Get("X-Canary") != "" {
		b.canary++
	}
	query := r.URL.Query()
	wanted, err := strconv.Atoi(query.Get("status"))
	key := query.Get("once")
	if err != nil || key != "" && b.done[key] {
		return http.StatusOK
	}
	b.done[key] = true
	return wanted
}

func each(listener net.Listener, serve func(net.Conn)) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer connection.Close()
			serve(connection)
		}()
	}
}

// shout answers until the client ends its side, and says goodbye then.
func shout(connection net.Conn) {
	buffer := make([]byte, 65536)
	for {
		count, err := connection.Read(buffer)
		if count > 0 {
			if _, err := connection.Write(bytes.ToUpper(buffer[:count])); err != nil {
				return
			}
		}
		if err == io.EOF {
			_, _ = connection.Write([]byte("BYE\n"))
			return
		}
		if err != nil {
			return
		}
	}
}

// signature begins each header of PROXY protocol version 2.
const signature = "\r\n\r\n\x00\r\nQUIT\n"

func greet(connection net.Conn, settings *tls.Config) {
	head := make([]byte, 16)
	if _, err := io.ReadFull(connection, head); err != nil || string(head[:12]) != signature {
		return
	}
	rest := make([]byte, binary.BigEndian.Uint16(head[14:]))
	if _, err := io.ReadFull(connection, rest); err != nil || len(rest) < 12 {
		return
	}
	client := fmt.Sprintf("%s:%d", net.IP(rest[:4]), binary.BigEndian.Uint16(rest[8:]))
	session := tls.Server(connection, settings)
	defer session.Close()
	fmt.Fprintf(session, "220 mail.shop.example for %s\r\n", client)
	line, _ := bufio.NewReader(session).ReadString('\n')
	fmt.Fprintf(session, "250 %s\r\n", strings.TrimSpace(line))
}
