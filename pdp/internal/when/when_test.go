package when_test

import (
	"errors"
	"testing"
	"time"

	"policy-service/pdp/internal/when"
)

var now = time.Date(2026, 11, 22, 10, 30, 0, 0, time.UTC)

func TestTime(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-20":                     "2026-11-20T00:00:00Z",
		"2026-11-20T15:04:05Z":           "2026-11-20T15:04:05Z",
		"2026-11-20T15:04:05.000000001Z": "2026-11-20T15:04:05.000000001Z",
		"2026-11-20T15:04:05+02:00":      "2026-11-20T13:04:05Z",
		"90s":                            "2026-11-22T10:28:30Z",
		"10m":                            "2026-11-22T10:20:00Z",
		"24h":                            "2026-11-21T10:30:00Z",
		"7d":                             "2026-11-15T10:30:00Z",
		"1d12h":                          "2026-11-20T22:30:00Z",
		"0s":                             "2026-11-22T10:30:00Z",
	} {
		got, err := when.ParseTime(text)
		if at := got.At(now).Format(time.RFC3339Nano); err != nil || at != want || got.IsZero() {
			t.Errorf("%s: %s, %v", text, at, err)
		}
	}
	for _, text := range []string{
		"", " ", "yesterday", "7", "d", "-7d", "+7d", "-1h", "+1h", "1h-2h", "7d-1h", "7 d", "106752d", "20-11-2026", "2026-13-01",
		"2026-11-20T15:04:05", "2026-11-20 15:04:05Z", "2026-11-20T15:04:05 02:00", "7w",
	} {
		if got, err := when.ParseTime(text); !errors.Is(err, when.ErrNoTime) {
			t.Errorf("%q is %v, %v", text, got.At(now), err)
		}
	}
}

// The zone of a now does not come to be that of an answer.
func TestAgesAreUTC(t *testing.T) {
	age, _ := when.ParseTime("1h")
	if at := age.At(now.In(time.FixedZone("", 3600))); at.Location() != time.UTC {
		t.Error(at)
	}
}

func TestMoment(t *testing.T) {
	var m when.Moment
	if err := m.UnmarshalText([]byte("2026-11-20")); err != nil || !m.Equal(time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)) {
		t.Error(m, err)
	}
	for _, text := range []string{"7d", "24h", "0s", "now", ""} {
		if err := m.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, m)
		}
	}
}

func TestSpan(t *testing.T) {
	at := func(text string) (read when.Time) {
		if text != "" {
			if err := read.UnmarshalText([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		return read
	}
	for _, c := range []struct {
		from, to, since string
		wantFrom        string
		want            error
		moves           bool
	}{
		{"2026-11-20", "2026-11-21", "", "2026-11-20T00:00:00Z", nil, false},
		{"", "", "24h", "2026-11-21T10:30:00Z", nil, true},
		{"", "1h", "2026-11-20", "2026-11-20T00:00:00Z", nil, true},
		{"7d", "", "", "2026-11-15T10:30:00Z", nil, true},
		{"7d", "", "7d", "", when.ErrTwice, true},
		{"", "", "2026-11-23", "", when.ErrFuture, false},
		{"2026-11-23", "", "", "2026-11-23T00:00:00Z", nil, false},
		{"", "", "", "0001-01-01T00:00:00Z", nil, false},
	} {
		s := when.Span{From: at(c.from), To: at(c.to), Since: at(c.since)}
		from, to, err := s.At(now)
		if !errors.Is(err, c.want) || err == nil && from.Format(time.RFC3339) != c.wantFrom || s.Moves() != c.moves || to.IsZero() != (c.to == "") {
			t.Errorf("%+v: %v, %v, %v", c, from, to, err)
		}
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"90d": 90 * 24 * time.Hour, "1d12h": 36 * time.Hour, "10m": 10 * time.Minute, "-1s": -time.Second} {
		if got, err := when.ParseDuration(text); got != want || err != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
