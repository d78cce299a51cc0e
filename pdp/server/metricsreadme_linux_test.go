package server_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
)

// The operator's page has every metric that there is and no other, and what to do for each alert.
func TestMetricsAndAlertsAreInTheREADME(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	must(t, err)
	_, page, _ := strings.Cut(string(text), "\n### Metrics, traces and alerts\n")
	page, _, _ = strings.Cut(page, "\n## ")
	var told []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(page, -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			told = append(told, name[1])
		}
	}
	var there []string
	for name := range alerts(t) {
		there = append(there, name)
	}
	_, after, _ := healthy(t)
	for _, s := range after {
		name, ours := strings.CutPrefix(string(s.Metric[model.MetricNameLabel]), "policy_service_")
		if ours {
			there = append(there, regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, ""))
		}
	}
	slices.Sort(told)
	slices.Sort(there)
	if there = slices.Compact(there); !slices.Equal(told, there) {
		t.Errorf("the README has\n%q\nthere are\n%q", told, there)
	}
}
