// Answers every request with a constant, by net/http.
package main

import (
	"io"
	"net/http"
	"os"
)

func main() {
	body := os.Args[2]
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, body)
	})
	if err := http.ListenAndServe("127.0.0.1:"+os.Args[1], nil); err != nil {
		panic(err)
	}
}
