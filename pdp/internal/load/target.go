package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"
)

// target is where connections go.
type target struct {
	addr string
	tls  *tls.Config // nil for plain HTTP
}

func (t target) dial() (net.Conn, error) {
	if t.tls != nil {
		return tls.Dial("tcp", t.addr, t.tls)
	}
	return net.Dial("tcp", t.addr)
}

// learn makes the side ready: it asks each request of the file once, and takes the answer as the right one.
func (s *side) learn(text, credentialFile, requestsFile string) (err error) {
	at, err := url.Parse(text)
	if err != nil || at.Hostname() == "" || at.Scheme != "http" && at.Scheme != "https" {
		return fmt.Errorf("%q is not where a request can be sent; try http://127.0.0.1:8180/access/v1/evaluation", text)
	}
	port := at.Port()
	if at.Scheme == "https" {
		s.target.tls = &tls.Config{ServerName: at.Hostname()}
	}
	switch {
	case port == "" && s.target.tls != nil:
		port = "443"
	case port == "":
		port = "80"
	}
	s.target.addr = net.JoinHostPort(at.Hostname(), port)

	authorization := ""
	if credentialFile != "" {
		credential, err := os.ReadFile(credentialFile)
		if err != nil {
			return fmt.Errorf("%w; try a file with an API key or a token", err)
		}
		authorization = "Bearer " + string(bytes.TrimSpace(credential))
	}
	requests, err := os.ReadFile(requestsFile)
	if err != nil {
		return fmt.Errorf("%w; try a file with the body of a request on each line", err)
	}
	conn, err := s.target.dial()
	if err != nil {
		return fmt.Errorf("%w; is there a server at %s?", err, text)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	c := connection{Conn: conn, in: bufio.NewReaderSize(conn, maxAnswer)}
	for body := range strings.Lines(string(requests)) {
		if body = strings.TrimSpace(body); body == "" {
			continue
		}
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		e := newExchange(at.Host, at.RequestURI(), authorization, body, nil)
		answer, kept, err := c.answer(e.request)
		if err != nil {
			return err
		}
		e.answer = bytes.Clone(answer)
		if _, err := c.in.Discard(kept); err != nil {
			return err
		}
		s.exchanges = append(s.exchanges, e)
	}
	if len(s.exchanges) == 0 {
		return fmt.Errorf("there is no request in %s; try one on each line", requestsFile)
	}
	return nil
}
