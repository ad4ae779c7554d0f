// gopush: a push server on the Go library centrifuge, as small as its documentation has it, for bench/push.py.
//
// WebSocket at /connection/websocket without credentials or checks, every channel open; POST /pub publishes each line of its body,
// a channel, a space and JSON. PORT is in the environment.
package main

import (
	"bufio"
	"context"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/centrifugal/centrifuge"
)

// Bytes of a line of a publication.
const lineBytes = 64 << 10

func main() {
	log.SetFlags(0)
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		log.Fatalf("gopush: %v", err)
	}
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{}}, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnSubscribe(func(_ centrifuge.SubscribeEvent, reply centrifuge.SubscribeCallback) {
			reply(centrifuge.SubscribeReply{}, nil)
		})
	})
	if err := node.Run(); err != nil {
		log.Fatalf("gopush: %v", err)
	}
	http.Handle("/connection/websocket", centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{
		CheckOrigin: func(*http.Request) bool { return true },
	}))
	http.HandleFunc("POST /pub", func(w http.ResponseWriter, r *http.Request) { publish(node, w, r) })
	log.Fatalf("gopush: %v", http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}

// publish publishes each line of the body.
func publish(node *centrifuge.Node, w http.ResponseWriter, r *http.Request) {
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(make([]byte, 0, lineBytes), lineBytes)
	for lines.Scan() {
		channel, json, found := strings.Cut(lines.Text(), " ")
		if !found {
			http.Error(w, "expected CHANNEL JSON in each line", http.StatusBadRequest)
			return
		}
		if _, err := node.Publish(channel, []byte(json)); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	if err := lines.Err(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
