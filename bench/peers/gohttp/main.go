// gohttp is Go's net/http with its own router, as its documentation starts a server.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"
)

type hello struct {
	Message string `json:"message"`
}

func answer(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Server", "Go")
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(body) // a peer that has left is no event here
}

func main() {
	routes := http.NewServeMux()
	routes.HandleFunc("/json", func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.Marshal(&hello{"Hello, World!"})
		if err != nil {
			log.Fatal(err)
		}
		answer(w, "application/json", body)
	})
	text := []byte("Hello, World!")
	routes.HandleFunc("/plaintext", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, "text/plain", text)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), routes))
}
