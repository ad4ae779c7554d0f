// goredis: a node of the Go library centrifuge with Redis as its broker, for comparisons of two nodes (bench/cluster.py).
//
// Clients connect at /connection/websocket. Channels retain 1,000 publications for ten minutes and are recoverable, unless -history=false. With
// -presence they have presence, also in Redis. POST /publish takes lines of a channel, a space and the data; they are published in the order of
// each channel, several channels at a time.
package main

import (
	"bufio"
	"context"
	"flag"
	"hash/fnv"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/centrifugal/centrifuge"
)

const (
	historySize = 1000
	historyTime = 10 * time.Minute
	// Publications of a request that are sent to Redis at a time; those of one channel follow each other.
	publishers = 64
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address")
	redis := flag.String("redis", "127.0.0.1:6379", "address of the Redis that all nodes share")
	history := flag.Bool("history", true, "retain publications")
	presence := flag.Bool("presence", false, "track the clients of channels")
	flag.Parse()
	node, err := newNode(*redis, *history, *presence)
	if err != nil {
		log.Fatal(err)
	}
	if err := node.Run(); err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/connection/websocket", centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{}))
	mux.HandleFunc("/publish", func(w http.ResponseWriter, r *http.Request) {
		if err := publishLines(node, *history, r); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
	log.Fatal(http.ListenAndServe(*listen, mux))
}

func newNode(redis string, history, presence bool) (*centrifuge.Node, error) {
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		return nil, err
	}
	shard, err := centrifuge.NewRedisShard(node, centrifuge.RedisShardConfig{Address: redis})
	if err != nil {
		return nil, err
	}
	broker, err := centrifuge.NewRedisBroker(node, centrifuge.RedisBrokerConfig{Shards: []*centrifuge.RedisShard{shard}})
	if err != nil {
		return nil, err
	}
	node.SetBroker(broker)
	manager, err := centrifuge.NewRedisPresenceManager(node, centrifuge.RedisPresenceManagerConfig{Shards: []*centrifuge.RedisShard{shard}})
	if err != nil {
		return nil, err
	}
	node.SetPresenceManager(manager)
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{}}, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnSubscribe(func(_ centrifuge.SubscribeEvent, reply centrifuge.SubscribeCallback) {
			reply(centrifuge.SubscribeReply{Options: centrifuge.SubscribeOptions{
				EnableRecovery: history, EnablePositioning: history, EmitPresence: presence,
			}}, nil)
		})
		client.OnPresence(func(_ centrifuge.PresenceEvent, reply centrifuge.PresenceCallback) {
			reply(centrifuge.PresenceReply{}, nil)
		})
	})
	return node, nil
}

type publication struct {
	channel string
	data    []byte
}

func publishLines(node *centrifuge.Node, history bool, r *http.Request) error {
	var options []centrifuge.PublishOption
	if history {
		options = append(options, centrifuge.WithHistory(historySize, historyTime))
	}
	var queues [publishers][]publication
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		channel, data, ok := strings.Cut(lines.Text(), " ")
		if !ok {
			continue
		}
		hash := fnv.New32a()
		hash.Write([]byte(channel))
		queue := &queues[hash.Sum32()%publishers]
		*queue = append(*queue, publication{channel, []byte(data)})
	}
	if err := lines.Err(); err != nil {
		return err
	}
	var group sync.WaitGroup
	failures := make(chan error, publishers)
	for _, queue := range queues {
		if len(queue) == 0 {
			continue
		}
		group.Add(1)
		go func() {
			defer group.Done()
			for _, each := range queue {
				_, err := node.Publish(each.channel, each.data, options...)
				if err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	group.Wait()
	close(failures)
	return <-failures
}
