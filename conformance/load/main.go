// Load measures how fast a server answers over HTTP, at any URL and whatever it is written in:
//
//	go run ./conformance/load -url http://127.0.0.1:8180/access/v1/evaluation -requests requests.ndjson
//	go run ./conformance/load -url URL -beside URL -requests requests.ndjson -duration 20s -conns 1,32
//
// The file has the body of a request on each line. Each is asked once before, and that answer is the right one: every
// answer that is measured is compared with it byte for byte, and a different answer ends the run. The server must
// answer 200, with a Content-Length.
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
	duration := flags.Duration("duration", 5*time.Second, "for each number of connections")
	numbers := flags.String("conns", "1,4,32,128", "numbers of connections")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *url == "" || *file == "" {
		return errors.New("a URL and requests are needed; try -url URL -requests FILE")
	}
	connections, err := parseConnections(*numbers, *duration)
	if err != nil {
		return err
	}
	sides := []*side{{name: "url"}}
	urls := []string{*url}
	if *beside != "" { // goes first, because a ratio is of the second to the first
		sides, urls = []*side{{name: "other"}, sides[0]}, []string{*beside, *url}
	}
	for i, s := range sides {
		if err := s.learn(urls[i], *credential, *file); err != nil {
			return err
		}
	}
	r := report{out}
	r.head(false)
	for _, n := range connections {
		if err := measure(ctx, sides, n, *duration); err != nil {
			return err
		}
		r.measured(n, sides)
	}
	return nil
}

// parseConnections reads numbers of connections. Each is measured for d, in which the two servers take turns of one
// slice each.
func parseConnections(text string, d time.Duration) (numbers []int, err error) {
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number of connections; try CONNS=1,32", one)
		}
		numbers = append(numbers, n)
	}
	if d < 2*slice {
		return nil, fmt.Errorf("in %v nobody gets a turn; try DURATION=5s", d)
	}
	return numbers, nil
}
