// fasthttp is the JSON and plain-text server on valyala/fasthttp.
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/valyala/fasthttp"
)

type hello struct {
	Message string `json:"message"`
}

func answer(c *fasthttp.RequestCtx) {
	switch string(c.Path()) {
	case "/json":
		body, err := json.Marshal(&hello{"Hello, World!"})
		if err != nil {
			log.Fatal(err)
		}
		c.SetContentType("application/json")
		c.SetBody(body)
	case "/plaintext":
		c.SetContentType("text/plain")
		c.SetBodyString("Hello, World!")
	default:
		c.SetStatusCode(fasthttp.StatusNotFound)
	}
}

func main() {
	server := &fasthttp.Server{Name: "fasthttp", Handler: answer}
	log.Fatal(server.ListenAndServe("127.0.0.1:" + os.Getenv("PORT")))
}
