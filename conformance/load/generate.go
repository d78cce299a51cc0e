package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"policy-service/pdp/latency"
)

// exchange is a request as it goes over the wire, and the body of the only right answer.
type exchange struct{ request, answer []byte }

// newExchange is a POST of JSON. Headers are given as name, value, ….
func newExchange(host, path, authorization, body string, answer []byte, headers ...string) exchange {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: load\r\n", path, host)
	fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	if authorization != "" {
		fmt.Fprintf(&b, "Authorization: %s\r\n", authorization)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", headers[i], headers[i+1])
	}
	b.WriteString("\r\n" + body)
	return exchange{b.Bytes(), answer}
}

// client is the connections to one server, which stay open.
type client struct {
	exchanges   []exchange
	connections []*connection
}

// connection asks one request after the other. It allocates nothing while it does.
type connection struct {
	net.Conn
	in   *bufio.Reader
	next int
}

// patience is how long a server may take for an answer.
const patience = 30 * time.Second

// maxAnswer is how long the body of an answer may be: the whole of it is compared in the reader's buffer.
const maxAnswer = 64 << 10

func dial(t target, connections int, exchanges []exchange) (*client, error) {
	c := &client{exchanges: exchanges}
	for n := range connections {
		conn, err := t.dial()
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.connections = append(c.connections, &connection{
			Conn: conn,
			in:   bufio.NewReaderSize(conn, maxAnswer),
			next: n * len(exchanges) / connections, // apart, or all would ask the same at the same time
		})
	}
	return c, nil
}

func (c *client) close() (err error) {
	for _, conn := range c.connections {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// drive asks over all connections at once, over each again when the answer to the one before is there, and returns when
// the last is answered.
func (c *client) drive(ctx context.Context, d time.Duration) (*latency.Histogram, time.Duration, error) {
	for _, conn := range c.connections {
		if err := conn.SetDeadline(time.Now().Add(d + patience)); err != nil {
			return nil, 0, err
		}
	}
	times, took, err := latency.Measure(d, len(c.connections), func(worker int) func() error {
		conn := c.connections[worker]
		return func() error {
			e := c.exchanges[conn.next%len(c.exchanges)]
			conn.next++
			return conn.ask(e)
		}
	})
	return times, took, errors.Join(err, ctx.Err())
}

func (c *connection) ask(e exchange) error {
	body, err := c.answer(e.request)
	if err != nil {
		return err
	}
	if !bytes.Equal(body, e.answer) {
		return fmt.Errorf("the answer is\n%s\nwhere\n%s\nis right, to\n%s", body, e.answer, e.request)
	}
	_, err = c.in.Discard(len(body))
	return err
}

// answer sends a request and returns the body of its answer, which stays in the buffer: the caller discards it.
func (c *connection) answer(request []byte) ([]byte, error) {
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	length, err := c.header()
	if err != nil {
		return nil, fmt.Errorf("%w, to\n%s", err, request)
	}
	return c.in.Peek(length)
}

var (
	statusOK      = []byte("HTTP/1.1 200 ")
	contentLength = []byte("Content-Length:")
)

// header reads up to the body, whose length it returns.
func (c *connection) header() (length int, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(line, statusOK) {
		return 0, fmt.Errorf("the answer is %q", bytes.TrimSpace(line))
	}
	length = -1
	for {
		line, err = c.in.ReadSlice('\n')
		switch {
		case err != nil:
			return 0, err
		case len(line) <= len("\r\n") && length < 0:
			return 0, errors.New("the answer does not say its length")
		case len(line) <= len("\r\n"):
			return length, nil
		case len(line) > len(contentLength) && bytes.EqualFold(line[:len(contentLength)], contentLength):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(contentLength):]))); err != nil {
				return 0, err
			}
			if length > maxAnswer {
				return 0, fmt.Errorf("the answer has %d bytes, more than %d", length, maxAnswer)
			}
		}
	}
}
