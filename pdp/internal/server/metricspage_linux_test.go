package server_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
)

// section is what stands on the operator's page of reference below a heading, subsections included.
func section(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../server/README.md")
	must(t, err)
	_, below, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("README.md has no heading %q", heading)
	}
	below, _, _ = strings.Cut(below, "\n## ")
	return below
}

// rows are the rows of the first table of a section, by each name that stands in their first cell.
func rows(text string) map[string]string {
	text, _, _ = strings.Cut(text, "\n### ")
	all := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|.*$").FindAllStringSubmatch(text, -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			all[name[1]] = row[0]
		}
	}
	return all
}

// The page has every metric that there is and no other, with its labels, and the values of those that have few.
func TestPageHasEveryMetric(t *testing.T) {
	t.Parallel()
	page := section(t, "All metrics")
	told, there := rows(page), map[string]bool{}
	_, after, _ := healthy(t)
	for _, s := range after {
		name, ours := strings.CutPrefix(string(s.Metric[model.MetricNameLabel]), "policy_service_")
		if !ours {
			continue
		}
		name = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if there[name] = true; told[name] == "" {
			t.Errorf("the page has no metric %s", name)
		}
		for label, value := range s.Metric {
			switch label {
			case model.MetricNameLabel, "job", "instance", "le":
				continue
			}
			if !strings.Contains(told[name], "`"+string(label)+"`") {
				t.Errorf("the page has no label %s of %s", label, name)
			}
			switch label {
			case "tenant", "http_route", "bundle", "type", "decision", "sink", "witness":
				continue // as many as there are
			}
			if name != "decisions_total" && name != "http_request_duration_seconds" && !strings.Contains(page, "`"+string(value)+"`") {
				t.Errorf("the page has no value %s of %s of %s", value, label, name)
			}
		}
	}
	for name := range told {
		if !there[name] {
			t.Errorf("the page has a metric that there is not: %s", name)
		}
	}
}

// The page has every alert that there is and no other, with its severity, and says what to do.
func TestPageHasEveryAlert(t *testing.T) {
	t.Parallel()
	told := rows(section(t, "All alerts"))
	text, err := os.ReadFile(deployDir + "/alerts.yaml")
	must(t, err)
	var names []string
	for _, rule := range regexp.MustCompile(`(?s)- alert: (\w+)\n.*?severity: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		name, severity := rule[1], rule[2]
		names = append(names, name)
		cells := strings.Split(told[name], " | ")
		if len(cells) != 4 || cells[1] != severity {
			t.Errorf("the page should have %s, which is %s, what it means and what to do; it has %q", name, severity, told[name])
		}
	}
	for name := range told {
		if !slices.Contains(names, name) {
			t.Errorf("the page has an alert that there is not: %s", name)
		}
	}
	if len(names) != len(alerts(t)) {
		t.Errorf("found %d of %d alerts", len(names), len(alerts(t)))
	}
}
