package counted_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"policy-service/pdp/pdptest/counted"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	at := func(call, end int64, kind counted.Kind) porcupine.Operation {
		return porcupine.Operation{ClientId: int(call), Input: counted.Event{Kind: kind}, Call: call, Return: end}
	}
	for name, one := range map[string]struct {
		history []porcupine.Operation
		want    porcupine.CheckResult
	}{
		"a use, then none":          {[]porcupine.Operation{at(1, 2, counted.Use), at(3, 4, counted.None)}, porcupine.Ok},
		"none, then a use":          {[]porcupine.Operation{at(1, 2, counted.None), at(3, 4, counted.Use)}, porcupine.Illegal},
		"none beside a use":         {[]porcupine.Operation{at(1, 3, counted.None), at(2, 4, counted.Use)}, porcupine.Ok},
		"two uses":                  {[]porcupine.Operation{at(1, 3, counted.Use), at(2, 4, counted.Use)}, porcupine.Illegal},
		"none while one is taken":   {[]porcupine.Operation{at(1, 9, counted.Take), at(2, 9, counted.Give), at(3, 4, counted.None), at(5, 6, counted.Use)}, porcupine.Ok},
		"none after it is back":     {[]porcupine.Operation{at(1, 2, counted.Take), at(3, 4, counted.Give), at(5, 6, counted.None)}, porcupine.Illegal},
		"a use of what is not back": {[]porcupine.Operation{at(1, 2, counted.Take), at(3, 4, counted.Use), at(5, 6, counted.Give)}, porcupine.Illegal},
	} {
		if got := counted.Judge(1, one.history, time.Minute); got != one.want {
			t.Errorf("%s: got %s", name, got)
		}
	}
}
