package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"policy-service/pdp/internal/latency"
)

// exchange is a request as it goes over the wire, and the body of the only right answer.
type exchange struct {
	request, answer []byte
	except          [][]int // the parts of the answer that are others each time, from and to, in order
}

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
	return exchange{request: b.Bytes(), answer: answer}
}

// isRight says whether a body is the right answer.
func (e exchange) isRight(body []byte) bool {
	if len(body) != len(e.answer) {
		return false
	}
	from := 0
	for _, part := range e.except {
		if !bytes.Equal(body[from:part[0]], e.answer[from:part[0]]) {
			return false
		}
		from = part[1]
	}
	return bytes.Equal(body[from:], e.answer[from:])
}

// load is how a server is asked. Closed, each connection asks again when it has its answer, so a slow server is asked
// less. Open, so many requests a second are sent at fixed times, whatever has been answered.
type load struct {
	connections int
	rate        int // requests a second; 0 is closed
}

// rateConnections is over how many connections a rate is sent.
const rateConnections = 16

func (l load) String() string {
	if l.rate > 0 {
		return fmt.Sprintf("%d/s", l.rate)
	}
	return strconv.Itoa(l.connections)
}

// client is the connections to one server, which stay open.
type client struct {
	load
	exchanges   []exchange
	connections []*connection
}

// connection asks one request after the other. It allocates nothing while it does.
type connection struct {
	net.Conn
	in    *bufio.Reader
	next  int
	body  []byte // of an answer in chunks
	alarm alarm  // of an open load
}

// patience is how long a server may take for an answer.
const patience = 30 * time.Second

// maxAnswer is how long the body of an answer may be: the whole of it is compared in the reader's buffer.
const maxAnswer = 64 << 10

func dial(t target, l load, exchanges []exchange) (*client, error) {
	c := &client{load: l, exchanges: exchanges}
	for n := range l.connections {
		conn, err := t.dial()
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		one := &connection{
			Conn: conn,
			in:   bufio.NewReaderSize(conn, maxAnswer),
			body: make([]byte, 0, maxAnswer),
			next: n * len(exchanges) / l.connections, // apart, or all would ask the same at the same time
		}
		c.connections = append(c.connections, one)
		if l.rate > 0 {
			if one.alarm, err = newAlarm(); err != nil {
				return nil, errors.Join(err, c.close())
			}
		}
	}
	return c, nil
}

func (c *client) close() (err error) {
	for _, conn := range c.connections {
		err = errors.Join(err, conn.Close(), conn.alarm.close())
	}
	return err
}

// drive asks over all connections at once until d has passed, and returns when the last is answered.
func (c *client) drive(ctx context.Context, d time.Duration) (times *latency.Histogram, took time.Duration, err error) {
	if err := c.expect(d + patience); err != nil {
		return nil, 0, err
	}
	if c.rate > 0 {
		times, took, err = c.driveOpen(ctx, d)
		took = max(took, d) // the time after the last request belongs to it, as that before the first does not
	} else {
		times, took, err = latency.Measure(d, len(c.connections), func(worker int) func() error {
			return func() error { return c.askNext(c.connections[worker]) }
		})
	}
	return times, took, errors.Join(err, ctx.Err())
}

// expect is for how long answers are waited for.
func (c *client) expect(d time.Duration) (err error) {
	for _, conn := range c.connections {
		err = errors.Join(err, conn.SetDeadline(time.Now().Add(d)))
	}
	return err
}

// driveOpen sends each request at its time, over the connection that waits for that time. If no connection is free then,
// the request is sent late. It is timed from when it was to be sent: otherwise a server that stops for a while would
// count as slow once, where all requests that were due in that while have waited for it. When ctx ends, nothing more is
// sent.
func (c *client) driveOpen(ctx context.Context, d time.Duration) (*latency.Histogram, time.Duration, error) {
	all := int64(d.Seconds() * float64(c.rate))
	var sent atomic.Int64
	start := time.Now()
	return latency.Together(len(c.connections), func(worker int, times *latency.Histogram) error {
		conn := c.connections[worker]
		for n := sent.Add(1) - 1; n < all && ctx.Err() == nil; n = sent.Add(1) - 1 {
			at := start.Add(time.Duration(n) * time.Second / time.Duration(c.rate))
			err := conn.alarm.wait(at)
			if err == nil {
				err = c.askNext(conn)
			}
			if err != nil {
				sent.Store(all) // the others need not go on
				return err
			}
			times.Record(time.Since(at))
		}
		return nil
	})
}

func (c *client) askNext(conn *connection) error {
	e := c.exchanges[conn.next%len(c.exchanges)]
	conn.next++
	return conn.ask(e)
}

func (c *connection) ask(e exchange) error {
	body, kept, err := c.answer(e.request)
	if err != nil {
		return err
	}
	if !e.isRight(body) {
		return fmt.Errorf("the answer is\n%s\nwhere\n%s\nis right, to\n%s", body, e.answer, e.request)
	}
	_, err = c.in.Discard(kept)
	return err
}

// answer sends a request and returns the body of its answer. So many bytes of it stay in the buffer: the caller discards them.
func (c *connection) answer(request []byte) (body []byte, kept int, err error) {
	if _, err := c.Write(request); err != nil {
		return nil, 0, err
	}
	length, err := c.header()
	if err != nil {
		return nil, 0, fmt.Errorf("%w, to\n%s", err, request)
	}
	if length == inChunks {
		err = c.chunks()
		return c.body, 0, err
	}
	body, err = c.in.Peek(length)
	return body, length, err
}

// chunks reads a body in chunks.
func (c *connection) chunks() error {
	for c.body = c.body[:0]; ; {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil || len(c.body)+int(size) > maxAnswer {
			return fmt.Errorf("the answer has the chunk %q, or more than %d bytes", line, maxAnswer)
		}
		chunk, err := c.in.Peek(int(size) + len("\r\n"))
		if err != nil {
			return err
		}
		c.body = append(c.body, chunk[:size]...)
		if _, err := c.in.Discard(len(chunk)); err != nil || size == 0 {
			return err
		}
	}
}

var (
	statusOK      = []byte("HTTP/1.1 200 ")
	contentLength = []byte("Content-Length:")
	chunked       = []byte("Transfer-Encoding: chunked")
)

// inChunks is the length of a body that comes in chunks.
const inChunks = -2

// header reads up to the body, whose length it returns.
func (c *connection) header() (length int, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(line, statusOK) {
		return 0, fmt.Errorf("the answer is %q", bytes.TrimSpace(line))
	}
	const unknown = -1
	length = unknown
	for {
		line, err = c.in.ReadSlice('\n')
		switch {
		case err != nil:
			return 0, err
		case len(line) <= len("\r\n") && length == unknown:
			return 0, errors.New("the answer does not say its length")
		case len(line) <= len("\r\n"):
			return length, nil
		case len(line) > len(chunked) && bytes.EqualFold(line[:len(chunked)], chunked):
			length = inChunks
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
