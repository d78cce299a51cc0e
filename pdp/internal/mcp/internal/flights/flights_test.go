package flights_test

import (
	"context"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/flights"
	"policy-service/pdp/internal/rpc"
)

// A client gives up its own request, by the id that it has: 1 and "1" are two, and what has its answer is nobody's any longer.
func TestFlights(t *testing.T) {
	var all flights.Flights
	begin := func(text string) context.Context {
		t.Helper()
		id, ok := rpc.ReadID(jsontext.Value(text))
		if !ok {
			t.Fatal(text)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if !all.Begin(id, cancel) {
			t.Fatalf("%s is under way already", text)
		}
		if all.Begin(id, cancel) {
			t.Errorf("%s is under way twice", text)
		}
		return ctx
	}
	number, text, over, last := begin(`1`), begin(`"1"`), begin(`2`), begin(`3`)
	two, _ := rpc.ReadID(jsontext.Value(`2`))
	all.End(two)
	for _, id := range []string{`"1"`, `2`, `4`, `{}`, ``} {
		all.Cancel(jsontext.Value(id))
	}
	if number.Err() != nil || text.Err() == nil || over.Err() != nil || last.Err() != nil {
		t.Errorf("given up are %v, %v, %v, %v", number.Err(), text.Err(), over.Err(), last.Err())
	}
	all.CancelAll()
	if number.Err() == nil || over.Err() != nil || last.Err() == nil {
		t.Errorf("in the end %v, %v, %v", number.Err(), over.Err(), last.Err())
	}
	if !all.Any() || new(flights.Flights).Any() {
		t.Error("what is given up is under way until its request has ended")
	}
}
