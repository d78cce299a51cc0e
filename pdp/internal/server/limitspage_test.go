package server

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/server/approvals"
	"policy-service/pdp/internal/server/audit"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/listener"
	"policy-service/pdp/internal/server/telemetry"
)

func limitsPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../server/LIMITS.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The page of limits has each word that refusals are counted by, and no other.
func TestTheLimitsPageHasEveryWord(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(limitsPage(t), "\n## Shares of a caller\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var told []string
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		for _, word := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[len(cells)-2], -1) {
			told = append(told, word[1])
		}
	}
	slices.Sort(told)
	there := slices.Sorted(slices.Values(telemetry.Limits()))
	if told = slices.Compact(told); !slices.Equal(told, there) {
		t.Errorf("the page has\n%q\nthere are\n%q", told, there)
	}
}

// Each word that the code counts a refusal by is one that begins at zero.
func TestRefusalsAreCountedByKnownWords(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, call := range regexp.MustCompile(`\bTooMany\("(\w+)"`).FindAllSubmatch(text, -1) {
			found++
			if word := string(call[1]); !slices.Contains(telemetry.Limits(), word) {
				t.Errorf("%s counts by %q, which is none of telemetry.Limits", path, word)
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d refusals were found: %v", found, err)
	}
}

// What the page says of shares is what they are.
func TestTheLimitsPageHasTheNumbers(t *testing.T) {
	t.Parallel()
	page := limitsPage(t)
	for _, want := range []string{
		fmt.Sprintf("in memory | %d | %d; %s wait |", door.MostLargeBodies, door.LargeOfOne, thousands(door.DecisionQueue)),
		fmt.Sprintf("408 for a body of which no %d KiB came for %v |", door.SmallBody>>10, shown(door.MakesWay)),
		fmt.Sprintf("samples, counts | %d | %d; %d wait |", audit.MostExports, audit.ExportsOfOne, door.LongQueue),
		fmt.Sprintf("must take %d KiB in %v, or in %v", audit.ExportPiece>>10, shown(audit.ExportPatience), shown(door.MakesWay)),
		fmt.Sprintf("`?wait=` | %s | %d |", thousands(approvals.MostWaiting), approvals.WaitingOfOne),
		fmt.Sprintf("share one look, at most every %v", shown(approvals.LookAgain)),
		fmt.Sprintf("pages of approval requests, and of tasks | %d at once | 1, callers take turns; %d wait |", approvals.MostPages, approvals.WaitingOfOne),
		fmt.Sprintf("changed every %v; %s wait |", shown(door.ShiftTime), thousands(door.DecisionQueue)),
		fmt.Sprintf("`max_connections`, %s |", thousands(listener.DefaultMaxConnections)),
		fmt.Sprintf("a page of the decision log, of approval requests, of tasks | %d MiB,", audit.PageBytes>>20),
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func shown(d fmt.Stringer) string {
	return regexp.MustCompile(`^(\d+)(ms|s)$`).ReplaceAllString(d.String(), "$1 $2")
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// Alerts that the page explains exist.
func TestTheLimitsPageExplainsAlerts(t *testing.T) {
	t.Parallel()
	page := limitsPage(t)
	alerts, err := os.ReadFile("../../../cmd/policy-service/deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(PolicyService[A-Za-z]+)`").FindAllStringSubmatch(page, -1)
	if len(named) == 0 {
		t.Error("it explains no alert")
	}
	for _, alert := range named {
		if !strings.Contains(string(alerts), "alert: "+alert[1]+"\n") {
			t.Errorf("there is no alert %s", alert[1])
		}
	}
}
