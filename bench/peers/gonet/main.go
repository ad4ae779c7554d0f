// gonet is the plain Go echo server: a goroutine and a 4 KiB buffer per connection.
package main

import (
	"log"
	"net"
	"os"
	"time"
)

func echo(c net.Conn) {
	defer c.Close()
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if _, err = c.Write(b[:n]); err != nil {
			return
		}
	}
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			time.Sleep(5 * time.Millisecond) // out of descriptors: as net/http does
			continue
		}
		go echo(c)
	}
}
