// Clients of the Go SDK for kill.py: reads a line with the clients, then a request of each line ("progress", "report").
package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/centrifugal/centrifuge-go"
)

const maxFaults = 100

type setup struct {
	Host    string `json:"host"`
	Clients []struct {
		Format        string               `json:"format"`
		Subscriptions [][3]json.RawMessage `json:"subscriptions"`
	} `json:"clients"`
}

type data struct {
	Number int    `json:"n"`
	Text   string `json:"text"`
	Sum    string `json:"sum"`
}

type subscription struct {
	sdk     *centrifuge.Subscription
	numbers []int
	last    int
}

// crowd is what the callbacks of all clients record.
type crowd struct {
	mutex         sync.Mutex
	faults        []string
	counts        map[string]int
	subscriptions []*subscription
}

func (c *crowd) fault(format string, arguments ...any) {
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, fmt.Sprintf(format, arguments...))
	}
}

func (c *crowd) locked(run func()) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	run()
}

func (c *crowd) subscribe(client *centrifuge.Client, name, channel, option string, filter int) error {
	config := centrifuge.SubscriptionConfig{MinResubscribeDelay: 100 * time.Millisecond, MaxResubscribeDelay: 2 * time.Second}
	if option == "delta" {
		config.Delta = centrifuge.DeltaTypeFossil
	}
	switch filter {
	case 0:
		config.TagsFilter = centrifuge.FilterEq("kind", "a")
	case 1:
		config.TagsFilter = centrifuge.FilterOr(centrifuge.FilterEq("kind", "b"), centrifuge.FilterGt("number", "50"))
	}
	sdk, err := client.NewSubscription(channel, config)
	if err != nil {
		return err
	}
	entry := &subscription{sdk: sdk, numbers: []int{}}
	c.locked(func() { c.subscriptions = append(c.subscriptions, entry) })
	sdk.OnSubscribed(func(event centrifuge.SubscribedEvent) {
		c.locked(func() {
			if event.Recovered {
				c.counts["recovered"]++
			} else if event.WasRecovering {
				c.fault("%s %s: not recovered after %d", name, channel, entry.last)
			}
		})
	})
	sdk.OnUnsubscribed(func(event centrifuge.UnsubscribedEvent) {
		c.locked(func() { c.fault("%s %s: unsubscribed with %d %s", name, channel, event.Code, event.Reason) })
	})
	sdk.OnError(func(centrifuge.SubscriptionErrorEvent) { c.locked(func() { c.counts["errors"]++ }) })
	sdk.OnPublication(func(event centrifuge.PublicationEvent) {
		var found data
		err := json.Unmarshal(event.Data, &found)
		sum := sha1.Sum(fmt.Appendf(nil, "%s\n%d\n%s", channel, found.Number, found.Text))
		c.locked(func() {
			c.counts["publications"]++
			if err != nil || hex.EncodeToString(sum[:]) != found.Sum {
				c.fault("%s %s: the data of %d is wrong: %v", name, channel, found.Number, err)
			}
			if found.Number <= entry.last {
				c.fault("%s %s: %d after %d", name, channel, found.Number, entry.last)
			}
			entry.numbers = append(entry.numbers, found.Number)
			entry.last = found.Number
		})
	})
	return sdk.Subscribe()
}

func (c *crowd) start(wanted setup) error {
	for index, each := range wanted.Clients {
		name := fmt.Sprintf("go %s %d", each.Format, index)
		config := centrifuge.Config{MinReconnectDelay: 100 * time.Millisecond, MaxReconnectDelay: 2 * time.Second}
		create := centrifuge.NewJsonClient
		if each.Format == "protobuf" {
			create = centrifuge.NewProtobufClient
		}
		client := create("ws://"+wanted.Host+"/connection/websocket", config)
		client.OnConnected(func(centrifuge.ConnectedEvent) { c.locked(func() { c.counts["connects"]++ }) })
		client.OnDisconnected(func(event centrifuge.DisconnectedEvent) {
			c.locked(func() { c.fault("%s: disconnected with %d %s", name, event.Code, event.Reason) })
		})
		client.OnError(func(centrifuge.ErrorEvent) { c.locked(func() { c.counts["errors"]++ }) })
		for _, parts := range each.Subscriptions {
			var channel, option string
			var filter int
			for part, target := range []any{&channel, &option, &filter} {
				if err := json.Unmarshal(parts[part], target); err != nil {
					return err
				}
			}
			if err := c.subscribe(client, name, channel, option, filter); err != nil {
				return err
			}
		}
		if err := client.Connect(); err != nil {
			return err
		}
	}
	return nil
}

func (c *crowd) progress() any {
	states := make([]bool, len(c.subscriptions))
	for index, each := range c.subscriptions {
		states[index] = each.sdk.State() == centrifuge.SubStateSubscribed
	}
	found := make([][2]any, len(c.subscriptions))
	c.locked(func() {
		for index, each := range c.subscriptions {
			found[index] = [2]any{states[index], each.last}
		}
	})
	return found
}

func (c *crowd) report() any {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	numbers := make([][]int, len(c.subscriptions))
	for index, each := range c.subscriptions {
		numbers[index] = append([]int{}, each.numbers...)
	}
	counts := map[string]int{}
	for name, count := range c.counts {
		counts[name] = count
	}
	return map[string]any{"faults": append([]string{}, c.faults...), "counts": counts, "numbers": numbers}
}

func main() {
	log.SetFlags(0)
	input := bufio.NewReader(os.Stdin)
	line := func() []byte {
		text, err := input.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		return text
	}
	var wanted setup
	if err := json.Unmarshal(line(), &wanted); err != nil {
		log.Fatal(err)
	}
	c := &crowd{counts: map[string]int{"connects": 0, "recovered": 0, "publications": 0, "errors": 0}}
	if err := c.start(wanted); err != nil {
		log.Fatal(err)
	}
	output := json.NewEncoder(os.Stdout)
	for {
		var request string
		if err := json.Unmarshal(line(), &request); err != nil {
			log.Fatal(err)
		}
		reply := c.progress
		if request == "report" {
			reply = c.report
		}
		if err := output.Encode(reply()); err != nil {
			log.Fatal(err)
		}
	}
}
