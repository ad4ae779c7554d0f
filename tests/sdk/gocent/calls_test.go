// Centrifugo's Go library for the HTTP API, unchanged, against our server: each method once, and a pipe of them.
//
// SERVER is the address, as in 127.0.0.1:8000; the key is `secret`.
package gocent_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/centrifugal/gocent/v3"
)

func client(t *testing.T) *gocent.Client {
	t.Helper()
	server := os.Getenv("SERVER")
	if server == "" {
		t.Fatal("expected the server's address in SERVER")
	}
	return gocent.New(gocent.Config{Addr: "http://" + server + "/api", Key: "secret"})
}

func TestPublishAndHistory(t *testing.T) {
	c, ctx := client(t), context.Background()
	if err := c.HistoryRemove(ctx, "recovery:gocent"); err != nil {
		t.Fatal(err)
	}
	published, err := c.Publish(ctx, "recovery:gocent", []byte(`{"x":1}`))
	if err != nil || published.Offset == 0 || published.Epoch == "" {
		t.Fatalf("%+v %v", published, err)
	}
	history, err := c.History(ctx, "recovery:gocent", gocent.WithLimit(gocent.NoLimit))
	if err != nil || len(history.Publications) != 1 || string(history.Publications[0].Data) != `{"x":1}` {
		t.Fatalf("%+v %v", history, err)
	}
	since := gocent.WithSince(&gocent.StreamPosition{Offset: published.Offset, Epoch: published.Epoch})
	history, err = c.History(ctx, "recovery:gocent", since, gocent.WithLimit(10), gocent.WithReverse(false))
	if err != nil || len(history.Publications) != 0 {
		t.Fatalf("%+v %v", history, err)
	}
}

func TestBroadcast(t *testing.T) {
	result, err := client(t).Broadcast(context.Background(), []string{"a", "b"}, []byte(`1`))
	if err != nil || len(result.Responses) != 2 || result.Responses[0].Error != nil {
		t.Fatalf("%+v %v", result, err)
	}
}

func TestPresence(t *testing.T) {
	c, ctx := client(t), context.Background()
	if result, err := c.Presence(ctx, "recovery:gocent"); err != nil || len(result.Presence) != 0 {
		t.Fatalf("%+v %v", result, err)
	}
	if result, err := c.PresenceStats(ctx, "recovery:gocent"); err != nil || result.NumClients != 0 {
		t.Fatalf("%+v %v", result, err)
	}
}

func TestUsers(t *testing.T) {
	c, ctx := client(t), context.Background()
	for name, err := range map[string]error{
		"subscribe":   c.Subscribe(ctx, "a", "nobody"),
		"unsubscribe": c.Unsubscribe(ctx, "a", "nobody"),
		"disconnect":  c.Disconnect(ctx, "nobody"),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServer(t *testing.T) {
	c, ctx := client(t), context.Background()
	if info, err := c.Info(ctx); err != nil || len(info.Nodes) != 1 {
		t.Fatalf("%+v %v", info, err)
	}
	if _, err := c.Channels(ctx, gocent.WithPattern("recovery:*")); err != nil {
		t.Fatal(err)
	}
}

func TestPipe(t *testing.T) {
	c, ctx := client(t), context.Background()
	pipe := c.Pipe()
	for _, channel := range []string{"recovery:gocent", "nowhere:a", "a"} {
		if err := pipe.AddPublish(channel, []byte(`2`)); err != nil {
			t.Fatal(err)
		}
	}
	replies, err := c.SendPipe(ctx, pipe)
	if err != nil || len(replies) != 3 {
		t.Fatalf("%+v %v", replies, err)
	}
	if replies[0].Error != nil || replies[1].Error == nil || replies[1].Error.Code != 102 || replies[2].Error != nil {
		out, _ := json.Marshal(replies)
		t.Fatalf("%s", out)
	}
}
