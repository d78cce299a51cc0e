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

func newExchange(path, authorization, body string, answer []byte) exchange {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: loadtest\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", path, len(body))
	if authorization != "" {
		fmt.Fprintf(&b, "Authorization: %s\r\n", authorization)
	}
	b.WriteString("\r\n" + body)
	return exchange{b.Bytes(), answer}
}

// answeredBy is what the floor is asked: the same requests.
func answeredBy(exchanges []exchange, answer []byte) []exchange {
	all := make([]exchange, len(exchanges))
	for i, e := range exchanges {
		all[i] = exchange{e.request, answer}
	}
	return all
}

// client is the connections to one server, which stay open.
type client struct {
	exchanges   []exchange
	connections []*connection
}

// connection asks one request after the other. It allocates nothing while it does.
type connection struct {
	net.Conn
	in    *bufio.Reader
	next  int
	times latency.Histogram
	err   error
}

func dial(addr string, connections int, exchanges []exchange) (*client, error) {
	c := &client{exchanges: exchanges}
	for n := range connections {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		// Connections begin apart, or all would ask the same at the same time.
		c.connections = append(c.connections, &connection{Conn: conn, in: bufio.NewReaderSize(conn, 64<<10), next: n * len(exchanges) / connections})
	}
	return c, nil
}

func (c *client) close() (err error) {
	for _, conn := range c.connections {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// drive asks over all connections at once, over each again when the answer to the one
// before is there, and returns when the last is answered.
func (c *client) drive(ctx context.Context, d time.Duration) (times *latency.Histogram, took time.Duration, err error) {
	start := time.Now()
	done := make(chan *connection)
	for _, conn := range c.connections {
		go func() {
			conn.times = latency.Histogram{}
			conn.err = conn.askUntil(start.Add(d), c.exchanges)
			done <- conn
		}()
	}
	times = new(latency.Histogram)
	for range c.connections {
		conn := <-done
		times.Add(&conn.times)
		err = errors.Join(err, conn.err)
	}
	return times, time.Since(start), errors.Join(err, ctx.Err())
}

// askUntil asks at least once.
func (c *connection) askUntil(end time.Time, exchanges []exchange) error {
	if err := c.SetDeadline(end.Add(patience)); err != nil {
		return err
	}
	for before := time.Now(); ; {
		if err := c.ask(exchanges[c.next%len(exchanges)]); err != nil {
			return err
		}
		c.next++
		now := time.Now()
		c.times.Record(now.Sub(before))
		if before = now; !now.Before(end) {
			return nil
		}
	}
}

func (c *connection) ask(e exchange) error {
	if _, err := c.Write(e.request); err != nil {
		return err
	}
	length, err := c.header()
	if err != nil {
		return fmt.Errorf("%w, to\n%s", err, e.request)
	}
	body, err := c.in.Peek(length)
	if err != nil {
		return err
	}
	if !bytes.Equal(body, e.answer) {
		return fmt.Errorf("the answer is\n%s\nwhere\n%s\nis right, to\n%s", body, e.answer, e.request)
	}
	_, err = c.in.Discard(length)
	return err
}

var (
	statusOK      = []byte("HTTP/1.1 200 ")
	contentLength = []byte("Content-Length: ")
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
		case bytes.HasPrefix(line, contentLength):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(contentLength):]))); err != nil {
				return 0, err
			}
		}
	}
}
