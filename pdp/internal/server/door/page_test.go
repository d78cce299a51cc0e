package door_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/door"
)

func newPageDoor() *door.Door {
	return door.New(door.Options{
		Limits: evaluation.DefaultLimits(),
		Load:   door.LoadConfig{RequestTime: time.Minute},
		Now:    time.Now,
		Meters: uncounted{},
	})
}

// However many browsers ask, so many pages are made at once, half of them for one address, and none of them in the place of
// a decision.
func TestPagesHavePlacesOfTheirOwn(t *testing.T) {
	t.Parallel()
	const most, ofOne, asked = 32, 16, 40
	d := newPageDoor()
	entered, leave := make(chan string, 2*asked), make(chan bool)
	handle := d.Pages(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- r.RemoteAddr
		<-leave
	}))
	var all sync.WaitGroup
	ask := func(from string) {
		all.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console/", nil)
			r.RemoteAddr = from
			if err := handle(echo.New().NewContext(r, httptest.NewRecorder())); err != nil {
				t.Errorf("%s: %v", from, err)
			}
		})
	}
	for n := range asked { // all of one home
		ask(fmt.Sprintf("[2001:db8::%x]:1000", n+1))
	}
	for range ofOne {
		<-entered
	}
	for n := range asked {
		ask(fmt.Sprintf("192.0.2.1:%d", 1000+n))
	}
	for range most - ofOne {
		if from := <-entered; strings.HasPrefix(from, "[") {
			t.Errorf("%s has one more than its share", from)
		}
	}
	if len(entered) > 0 || d.Busy() {
		t.Errorf("%d more are inside, or one has a place of decisions: %v", len(entered), d.Busy())
	}
	close(leave)
	all.Wait()
	if len(entered) != 2*asked-most {
		t.Errorf("%d entered later, want %d", len(entered), 2*asked-most)
	}
}

// A page gets its body whole, or is not asked; and what it does not answer is an answer without content.
func TestPagesGetBodies(t *testing.T) {
	t.Parallel()
	d := newPageDoor()
	read := ""
	handle := d.Pages(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || int64(len(body)) != r.ContentLength {
			t.Errorf("%d of %d bytes, %v", len(body), r.ContentLength, err)
		}
		read = string(body)
	}))
	for length, want := range map[int]int{0: http.StatusOK, 9: http.StatusOK, 64 << 10: http.StatusOK, 64<<10 + 1: http.StatusRequestEntityTooLarge} {
		for _, announced := range []bool{true, false} {
			read = ""
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/console/login", strings.NewReader(strings.Repeat("x", length)))
			if !announced {
				r.ContentLength = -1
			}
			e, w := echo.New(), httptest.NewRecorder()
			if err := handle(e.NewContext(r, w)); err != nil {
				d.Fail(err, e.NewContext(r, w))
			}
			if w.Code != want || want == http.StatusOK && len(read) != length || want != http.StatusOK && read != "" {
				t.Errorf("%d bytes, announced %v: got %d, and the page read %d", length, announced, w.Code, len(read))
			}
		}
	}
}

// halting is a large body of which the second half does not come.
type halting struct {
	first io.Reader
	halts func()
	end   <-chan bool
}

func (h halting) Read(p []byte) (int, error) {
	if n, err := h.first.Read(p); err == nil {
		return n, nil
	}
	h.halts()
	<-h.end
	return 0, io.ErrUnexpectedEOF
}

// However many strangers send large forms that do not arrive, none of them has a place that a caller's large body needs.
func TestLargeFormsTakeNoPlaceOfCallers(t *testing.T) {
	t.Parallel()
	const addresses, ofOne, most = 8, 20, 32
	d := newPageDoor()
	halted, end := make(chan bool, addresses*ofOne), make(chan bool)
	handle := d.Pages(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a form that is not whole is read") }))
	var all sync.WaitGroup
	for n := range addresses * ofOne {
		all.Go(func() {
			body := halting{strings.NewReader(strings.Repeat("x", 32<<10)), sync.OnceFunc(func() { halted <- true }), end}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/console/login", body)
			r.RemoteAddr, r.ContentLength = fmt.Sprintf("192.0.2.%d:%d", n%addresses, 1000+n), 60<<10
			c := echo.New().NewContext(r, httptest.NewRecorder())
			if err := handle(c); err == nil {
				t.Error("a form that did not arrive is answered")
			} else {
				d.Fail(err, c)
			}
		})
	}
	for range most {
		<-halted
	}
	if places := d.Large.Shares(); len(places) > 0 || len(halted) > 0 {
		t.Errorf("strangers have %v of the places of callers, and %d places of forms too many", places, len(halted))
	}
	close(end)
	all.Wait()
}
