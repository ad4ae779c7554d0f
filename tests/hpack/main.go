// Go's coder of header fields (golang.org/x/net/http2/hpack) on standard input and output, a line a command and a line an answer:
//
//	new                 forgets both tables
//	most BYTES          bounds the table that is written by
//	write N=V N!V ...   a block with these fields, names and values in hex; ! for one that must not be indexed
//	read BLOCK          the fields of a block, both in hex
package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"
)

type coder struct {
	block   bytes.Buffer
	encoder *hpack.Encoder
	decoder *hpack.Decoder
}

func newCoder() *coder {
	c := &coder{decoder: hpack.NewDecoder(4096, nil)}
	c.encoder = hpack.NewEncoder(&c.block)
	return c
}

func main() {
	c := newCoder()
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		command, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		said := ""
		switch command {
		case "new":
			c = newCoder()
		case "most":
			var most int
			if most, err = strconv.Atoi(rest); err == nil {
				c.encoder.SetMaxDynamicTableSize(uint32(most))
			}
		case "write":
			said, err = c.write(rest)
		case "read":
			said, err = c.read(rest)
		default:
			err = fmt.Errorf("expected new, most, write or read, found %q", command)
		}
		if err != nil {
			said = "error: " + err.Error()
		}
		fmt.Println(said)
	}
}

func (c *coder) write(fields string) (string, error) {
	c.block.Reset()
	for _, field := range strings.Fields(fields) {
		at := strings.IndexAny(field, "=!")
		if at < 0 {
			return "", fmt.Errorf("expected NAME=VALUE or NAME!VALUE, found %q", field)
		}
		name, err := hex.DecodeString(field[:at])
		if err != nil {
			return "", err
		}
		value, err := hex.DecodeString(field[at+1:])
		if err != nil {
			return "", err
		}
		one := hpack.HeaderField{Name: string(name), Value: string(value), Sensitive: field[at] == '!'}
		if err := c.encoder.WriteField(one); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(c.block.Bytes()), nil
}

func (c *coder) read(block string) (string, error) {
	bytes, err := hex.DecodeString(block)
	if err != nil {
		return "", err
	}
	fields, err := c.decoder.DecodeFull(bytes)
	if err != nil {
		return "", err
	}
	words := make([]string, len(fields))
	for i, field := range fields {
		words[i] = hex.EncodeToString([]byte(field.Name)) + "=" + hex.EncodeToString([]byte(field.Value))
	}
	return strings.Join(words, " "), nil
}
