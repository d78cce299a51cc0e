package logging_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"policy-service/pdp/internal/logging"
	"policy-service/pdp/pdptest/written"
)

// lines are what was written, without the time.
func lines(b *written.Text) (all []string) {
	for line := range strings.Lines(b.Take()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, line)
	}
	return all
}

func wants(t *testing.T, b *written.Text, want ...string) {
	t.Helper()
	if got := lines(b); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func refused(log *slog.Logger, cause, id string) {
	log.Warn("not answered", slog.Group("", "cause", cause), "request_id", id)
}

func TestLevelsAndFormats(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for level, want := range map[logging.Level]string{
		"": "error warn info", "error": "error", "warn": "error warn", "info": "error warn info", "debug": "error warn info debug",
	} {
		var b written.Text
		log := logging.New(&b, logging.Config{Level: level, Format: logging.JSON})
		log.Error("error")
		log.Warn("warn")
		log.Info("info")
		log.Debug("debug")
		log.Log(ctx, logging.Access, "access")
		var got []string
		for line := range strings.Lines(b.String()) {
			var one struct{ Time, Level, Msg string }
			if err := json.Unmarshal([]byte(line), &one); err != nil || !strings.EqualFold(one.Level, one.Msg) {
				t.Errorf("%s: %v", line, err)
			}
			got = append(got, one.Msg)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %s, want %s", level, got, want)
		}
	}
	var b written.Text
	log := logging.New(&b, logging.Config{Level: "error", Access: true})
	child := log.With("of", "x")
	child.Log(ctx, logging.Access, "request")
	child.Warn("not yet")
	log.Set(logging.Config{Level: "warn"})
	child.Log(ctx, logging.Access, "request")
	child.Warn("now")
	wants(t, &b, `level=ACCESS msg=request of=x`, `level=WARN msg=now of=x`)
}

// The first of equal lines is written at once, and the others once a minute, with their number. What differs in more than an
// id is another line.
func TestEqualLinesAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b written.Text
		log := logging.New(&b, logging.Config{})
		const full, slow = `level=WARN msg="not answered" cause=full request_id=`, `level=WARN msg="not answered" cause=slow request_id=`
		refused(log.Logger, "full", "1")
		refused(log.Logger, "full", "2")
		refused(log.Logger, "slow", "3")
		refused(log.With("of", "x"), "full", "4")
		log.Error("not answered", slog.Group("", "cause", "full"))
		for range 2 {
			log.Warn("the service itself", "cause", "full")
		}
		refused(log.Logger, "full", "5")
		wants(t, &b, full+"1", slow+"3", `level=WARN msg="not answered" of=x cause=full request_id=4`, `level=ERROR msg="not answered" cause=full`,
			`level=WARN msg="the service itself" cause=full`, `level=WARN msg="the service itself" cause=full`)
		time.Sleep(time.Minute)
		synctest.Wait()
		wants(t, &b, full+"5 repeated=2")
		refused(log.Logger, "full", "6") // the next window
		refused(log.Logger, "slow", "7") // was forgotten
		wants(t, &b, slow+"7")
		time.Sleep(time.Minute)
		synctest.Wait()
		wants(t, &b, full+"6 repeated=1")
		time.Sleep(time.Minute)
		synctest.Wait()
		refused(log.Logger, "full", "8")
		wants(t, &b, full+"8")
		refused(log.Logger, "full", "9")
		log.Close()
		wants(t, &b, full+"9 repeated=1")
		refused(log.Logger, "full", "10")
		refused(log.Logger, "full", "11")
		wants(t, &b, full+"10", full+"11")
	})
}

// However many events there are, few are kept, and each line is written or counted.
func TestManyEventsLoseNoLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b written.Text
		log := logging.New(&b, logging.Config{})
		const events, each = 1000, 3
		var all sync.WaitGroup
		for n := range events {
			all.Go(func() {
				for range each {
					refused(log.Logger, fmt.Sprint("cause ", n), "x")
				}
			})
		}
		all.Wait()
		log.Close()
		told := 0
		for _, line := range lines(&b) {
			n := 1
			if counted := regexp.MustCompile(`repeated=(\d+)`).FindStringSubmatch(line); counted != nil {
				_, _ = fmt.Sscan(counted[1], &n)
			}
			told += n
		}
		if told != events*each {
			t.Errorf("%d lines of %d are told of", told, events*each)
		}
	})
}

// A line that is too long to be kept is written each time.
func TestALongLineIsNotKept(t *testing.T) {
	t.Parallel()
	var b written.Text
	log := logging.New(&b, logging.Config{})
	defer log.Close()
	for range 2 {
		refused(log.Logger, "full", strings.Repeat("x", 5000))
	}
	if got := lines(&b); len(got) != 2 {
		t.Errorf("%d lines", len(got))
	}
}

// A line that nobody wants costs nothing.
func TestWhatIsNotWrittenAllocatesNothing(t *testing.T) {
	log := logging.New(&written.Text{}, logging.Config{})
	if n := testing.AllocsPerRun(100, func() {
		if log.Enabled(context.Background(), logging.Access) {
			log.Info("request")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
