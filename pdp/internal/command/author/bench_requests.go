package author

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
)

// askedRequest is a request to decide over and over, and where it was read.
type askedRequest struct {
	call  pdp.Call
	place string
}

// asked are the requests of the file, or those of the bundle's tests.
func (c Bench) asked(s cli.Streams) ([]askedRequest, error) {
	if c.Requests == "" {
		return c.examples(s)
	}
	in, err := cli.Open(c.Requests, s.In)
	if err != nil {
		return nil, fmt.Errorf("cannot read the requests: %w; "+
			"try a file with a request on each line, or - for standard input", err)
	}
	defer func() { _ = in.Close() }()
	all, err := c.lines(in)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("there is no request in %s; write one on each line, such as\n%s", c.Requests, firstRequest)
	}
	return all, err
}

// firstRequest is a request to begin with.
const firstRequest = `{"subject":{"type":"user","id":"alice"},` +
	`"action":{"name":"read"},"resource":{"type":"file","id":"plan"}}`

// lines reads NDJSON, and passes over empty lines.
func (c Bench) lines(in io.Reader) (all []askedRequest, err error) {
	limits := evaluation.DefaultLimits()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, limits.Body+len("\r\n")+1)
	n := 1
	for ; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		place := fmt.Sprintf("%s:%d", c.Requests, n)
		request, err := evaluation.Decode(bytes.Clone(lines.Bytes()), c.Tenant, limits)
		if err != nil {
			return nil, fmt.Errorf("%s: the request is malformed: %w; mend this line and try again", place, err)
		}
		if request.Tenant == "" { // must not come to mean default
			return nil, fmt.Errorf("%s: %w", place, undecided(pdp.ErrUnknownTenant, request))
		}
		all = append(all, askedRequest{pdp.Call{Request: request}, place})
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("%s:%d: the line has more than %d bytes; a request must not, so write one on each line",
			c.Requests, n, limits.Body)
	case err != nil:
		return nil, fmt.Errorf("cannot read the requests: %w; try again", err)
	}
	return all, nil
}

// examples are the requests of the bundle's tests, with the caller and the time
// that each of them names.
func (c Bench) examples(s cli.Streams) ([]askedRequest, error) {
	if c.Tenant != "" {
		return nil, errors.New("--tenant is for requests of a file, tests name their own; " +
			"add --requests, or leave --tenant out")
	}
	examples, problems := pdp.Examples(pdp.Dir(c.Policies))
	if problems.Refuse() {
		s.Tell("%s", cli.Lines(bundledir.Placed(c.Policies, problems).Error()))
		return nil, fmt.Errorf("the tests in %s cannot be read; mend what is listed above, or try --requests FILE",
			c.Policies)
	}
	if len(examples) == 0 {
		return nil, fmt.Errorf("there is no test in %s whose request could be asked; "+
			"try --requests FILE, with a request on each line", c.Policies)
	}
	all := make([]askedRequest, len(examples))
	for i, e := range examples {
		all[i] = askedRequest{e.Call, fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)}
	}
	return all, nil
}
