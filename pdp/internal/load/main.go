// Load measures how fast a server answers over HTTP, at any URL and whatever it is written in:
//
//	go run ./pdp/internal/load -url http://127.0.0.1:8180/access/v1/evaluation -requests requests.ndjson
//	go run ./pdp/internal/load -url URL -beside URL -requests requests.ndjson -duration 20s -conns 1,32
//	go run ./pdp/internal/load -url URL -requests requests.ndjson -conns= -rates 1000,5000 -pid "$(pidof server)"
//
// The file has the body of a request on each line. Each is asked once before, and that answer is the right one: every
// answer that is measured is compared with it byte for byte, and a different answer ends the run. The server must
// answer 200, with a Content-Length or in chunks. A part that matches -except, such as the id of a call, is not compared.
//
// Over so many connections (-conns), each asks again when it has its answer. At so many requests a second (-rates), over
// 16 connections, each request is sent at its time, whatever has been answered, and timed from then.
//
// Two servers are asked in turns of a quarter of a second, so that a noisy machine befalls both alike; what is compared
// are turns that lie side by side. Read measure.go for what is measured, and generate.go for how the servers are asked.
//
// Load knows nothing of a server but its URL. It starts no server, and does not judge what is right. `make bench-http`
// measures our own service with it, beside the bare framework: benchhttp_test.go starts both, has the right answers from
// the library, and holds the numbers to bounds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	runtime.GOMAXPROCS(1) // the server may be on this machine, and is to have the other cores
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	url := flags.String("url", "", "where requests are sent")
	beside := flags.String("beside", "", "another URL, which gets the same requests, to compare with")
	file := flags.String("requests", "", "a file with the body of a request on each line (NDJSON)")
	credential := flags.String("credential", "", "a file with the API key or token that is sent")
	except := flags.String("except", "", "a pattern of parts of an answer that are others each time, and not compared")
	duration := flags.Duration("duration", 5*time.Second, "for each number of connections, and each rate")
	numbers := flags.String("conns", "1,4,32,128", "numbers of connections")
	rates := flags.String("rates", "", "requests a second")
	pid := flags.Int("pid", 0, "the process of the server, to print its CPU, if it is on this machine")
	besidePID := flags.Int("beside-pid", 0, "the process of the other server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *url == "" || *file == "" {
		return errors.New("a URL and requests are needed; try -url URL -requests FILE")
	}
	loads, err := parseLoads(*numbers, *rates, *duration)
	if err != nil {
		return err
	}
	others, err := regexp.Compile(*except)
	if err != nil {
		return fmt.Errorf(`%w; try -except '"callId":"[^"]*"'`, err)
	}
	sides := []*side{{name: "url", pid: *pid}}
	urls := []string{*url}
	if *beside != "" { // goes first, because a ratio is of the second to the first
		sides, urls = []*side{{name: "other", pid: *besidePID}, sides[0]}, []string{*beside, *url}
	}
	for i, s := range sides {
		if err := s.learn(urls[i], *credential, *file); err != nil {
			return err
		}
		if *except == "" {
			continue
		}
		for n := range s.exchanges {
			s.exchanges[n].except = others.FindAllIndex(s.exchanges[n].answer, -1)
		}
	}
	r := report{out}
	r.head(false)
	for _, l := range loads {
		if err := measure(ctx, sides, l, *duration); err != nil {
			return err
		}
		r.measured(l, sides)
	}
	return nil
}

// parseLoads reads numbers of connections, and rates. Each is measured for d, in which the two servers take turns of one
// slice each.
func parseLoads(connections, rates string, d time.Duration) (loads []load, err error) {
	numbers, err := parseNumbers(connections)
	if err != nil {
		return nil, fmt.Errorf("%w of connections; try CONNS=4,32", err)
	}
	for _, n := range numbers {
		loads = append(loads, load{connections: n})
	}
	if numbers, err = parseNumbers(rates); err != nil {
		return nil, fmt.Errorf("%w of requests a second; try RATES=1000,5000", err)
	}
	for _, n := range numbers {
		if time.Second/time.Duration(n) > slice {
			return nil, fmt.Errorf("%d/s is less than one request in %v; try RATES=1000,5000", n, slice)
		}
		loads = append(loads, load{rateConnections, n})
	}
	if len(loads) == 0 {
		return nil, errors.New("nothing would be asked; try CONNS=4,32 or RATES=1000")
	}
	if d < 2*slice {
		return nil, fmt.Errorf("in %v nobody gets a turn; try DURATION=5s", d)
	}
	return loads, nil
}

func parseNumbers(text string) (numbers []int, err error) {
	if text == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number", one)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
