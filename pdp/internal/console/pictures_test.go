package console_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"policy-service/pdp/pdptest/browsertest"
)

var updatePictures = flag.Bool("update-pictures", false, "take the pictures of the approver's page again, and write down what is on them")

// mostOfPictures bounds all pictures together, in bytes: whoever clones the repository gets them.
const mostOfPictures = 300_000

// picture is one of the approver's page, by its name: what is on the screen of somebody who opens a path.
type picture struct {
	name  string
	path  func(w *pictureWorld) string
	width int64
	dark  bool
}

var pictures = []picture{
	{"inbox", func(*pictureWorld) string { return "/console/approvals" }, 1280, false},
	{"request", func(w *pictureWorld) string { return "/console/approvals/" + w.plain }, 1280, false},
	{"hostile", func(w *pictureWorld) string { return "/console/approvals/" + w.hostile }, 1280, false},
	{"narrow", func(w *pictureWorld) string { return "/console/approvals/" + w.plain }, 390, false},
	{"dark", func(w *pictureWorld) string { return "/console/approvals/" + w.plain }, 1280, true},
}

// pictureWorld is what alice finds on a Friday morning.
type pictureWorld struct {
	*flow
	plain, hostile string
}

func openPictures(t *testing.T) *pictureWorld {
	f := openFlow(t)
	says := func(who, id, decision, reason string) {
		f.api(who, "POST", "/v1/approvals/"+id+"/decision", `{"decision":"`+decision+`","reason":"`+reason+`"}`, new(any))
	}
	push := func(arguments, more string) string {
		return f.asksIn("agent-release", "github.push_code", `{"arguments":{`+arguments+`,"repository":"shop"}`+more+`}`)
	}
	last := push(`"branch":"release-1.3"`, `,"justification":"Release 1.3"`)
	says("mia", last, "approve", "tests are green")
	f.api("gateway", "POST", "/v1/authorize", `{"tenant_id":"default","actor":{"actor_id":"agent-release","actor_type":"agent"},
		"action":"tool.invoke","resource":{"type":"tool","id":"github.push_code"},
		"context":{"arguments":{"branch":"release-1.3","repository":"shop"},"approval_id":"`+last+`"}}`, new(any))
	f.Advance(5 * time.Hour)
	instance := f.asks("agent-nightly", "aws.terminate_instance", `{"instance":"i-0a4c","region":"eu-central-1"}`)
	f.Advance(7 * time.Minute)
	says("frank", instance, "approve", "it idles")
	f.Advance(9 * time.Minute)
	w := &pictureWorld{flow: f}
	w.hostile = push(`"branch":"m\u0430in","file":"logo\u202egnp.sh"`, `,"justification":"the new logo"`)
	f.Advance(4 * time.Minute)
	w.plain = push(`"branch":"main"`, `,"justification":"Release 1.4"`)
	f.Advance(19 * time.Minute)
	return w
}

// pageDir has the page for approvers, and its pictures.
const pageDir = "../../console"

// TestPictures holds what is on the pictures to what the pages show now. Pixels differ by fonts, and are for people.
func TestPictures(t *testing.T) {
	t.Parallel()
	w := openPictures(t)
	pages := new(txtar.Archive)
	var bytes int
	p := w.open("alice", browsertest.WithoutScript()) // scripts show how time passes, and a picture is of one moment
	for _, picture := range pictures {
		file := filepath.Join(pageDir, "pictures", picture.name+".webp")
		rightsResize(p, picture.width, map[int64]int64{1280: 800, 390: 844}[picture.width])
		if picture.dark {
			rightsMedia(p, "", "prefers-color-scheme", "dark")
		}
		p.Goto(picture.path(w))
		p.Settle()
		if *updatePictures {
			flowMust(t, os.WriteFile(file, p.ScreenshotWebP(70), 0o644))
		}
		pages.Files = append(pages.Files, txtar.File{Name: picture.name, Data: []byte(unnumbered(p.Tree()))})
		info, err := os.Stat(file)
		flowMust(t, err)
		bytes += int(info.Size())
	}
	if bytes > mostOfPictures {
		t.Errorf("the pictures have %d bytes together, and %d is what they may have", bytes, mostOfPictures)
	}
	const golden = "testdata/pictures.txtar"
	if *updatePictures {
		flowMust(t, os.WriteFile(golden, txtar.Format(pages), 0o644))
	}
	want, err := os.ReadFile(golden)
	flowMust(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(txtar.Format(pages)), "\n")); diff != "" {
		t.Errorf("the pictures are out of date: go test ./pdp/internal/console -run TestPictures -update-pictures (-then +now)\n%s", diff)
	}
	shown, err := os.ReadFile(filepath.Join(pageDir, "README.md"))
	flowMust(t, err)
	files, err := filepath.Glob(filepath.Join(pageDir, "pictures/*"))
	flowMust(t, err)
	for _, file := range files {
		if !strings.Contains(string(shown), "](pictures/"+filepath.Base(file)+")") {
			t.Errorf("the page does not show %s", file)
		}
	}
	if len(files) != len(pictures) {
		t.Errorf("%d pictures are there, and %d are taken", len(files), len(pictures))
	}
}

var number = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// unnumbered is a text without the ids that differ each time.
func unnumbered(text string) string { return number.ReplaceAllString(text, "ID") }
