// gnet echoes on one event loop, with one write per read: the shape of the library's own example.
package main

import (
	"log"
	"os"

	"github.com/panjf2000/gnet/v2"
)

type server struct {
	gnet.BuiltinEventEngine
}

func (*server) OnTraffic(c gnet.Conn) gnet.Action {
	b, err := c.Next(-1)
	if err != nil {
		return gnet.Close
	}
	if _, err = c.Write(b); err != nil {
		return gnet.Close
	}
	return gnet.None
}

func main() {
	address := "tcp://127.0.0.1:" + os.Getenv("PORT")
	log.Fatal(gnet.Run(&server{}, address, gnet.WithMulticore(false), gnet.WithNumEventLoop(1)))
}
