package server_test

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
)

// promQL evaluates the part of Prometheus' language that our alerts and dashboard are
// written in, over two scrapes that stand for the two ends of every range. What it does not
// know it refuses: an expression is not to mean something here that it does not mean
// there. Prometheus' own would bring half of Kubernetes into go.mod.
type promQL struct {
	tokens        []string
	before, after model.Vector
}

// evaluate panics where an expression is not of this part of the language.
func evaluate(t testing.TB, expression string, before, after model.Vector) (result model.Vector) {
	t.Helper()
	defer func() {
		if v := recover(); v != nil {
			t.Fatalf("%s: %v", expression, v)
		}
	}()
	q := &promQL{tokenize(expression), before, after}
	result = q.comparison()
	if len(q.tokens) > 0 {
		panic("what follows is not understood: " + strings.Join(q.tokens, " "))
	}
	return result
}

var token = regexp.MustCompile(`^\s*("(?:[^"\\]|\\.)*"|[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9.]+(?:[smhd]|ms)?|=~|!=|!~|==|[-+*/<>=(){}\[\],])`)

func tokenize(text string) (all []string) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		m := token.FindStringSubmatch(text)
		if m == nil {
			panic("not understood: " + text)
		}
		all, text = append(all, m[1]), text[len(m[0]):]
	}
	return all
}

func (q *promQL) peek() string {
	if len(q.tokens) == 0 {
		return ""
	}
	return q.tokens[0]
}

func (q *promQL) next() string {
	t := q.peek()
	q.tokens = q.tokens[min(1, len(q.tokens)):]
	return t
}

func (q *promQL) want(token string) {
	if got := q.next(); got != token {
		panic(fmt.Sprintf("%q where %q should be", got, token))
	}
}

func (q *promQL) number() float64 {
	v, err := strconv.ParseFloat(q.next(), 64)
	if err != nil {
		panic(err)
	}
	return v
}

// comparison keeps the samples for which it is true.
func (q *promQL) comparison() model.Vector {
	v := q.arithmetic()
	op := q.peek()
	if !slices.Contains([]string{">", "<", "=="}, op) {
		return v
	}
	q.next()
	bound := q.number()
	return slices.DeleteFunc(v, func(s *model.Sample) bool {
		value := float64(s.Value)
		return !(op == ">" && value > bound || op == "<" && value < bound || op == "==" && value == bound)
	})
}

// arithmetic is - and / between vectors whose labels are the same. There is one operator
// at most, so that nobody need know which comes first.
func (q *promQL) arithmetic() model.Vector {
	left := q.vector()
	op := q.peek()
	if op != "-" && op != "/" {
		return left
	}
	q.next()
	if q.peek() == "time" {
		q.next()
		q.want("(")
		q.want(")")
		var result model.Vector
		for _, s := range left {
			result = append(result, &model.Sample{Metric: s.Metric, Value: s.Value - model.SampleValue(time.Now().Unix())})
		}
		return result
	}
	right := map[string]float64{}
	for _, s := range q.vector() {
		right[s.Metric.String()] = float64(s.Value)
	}
	var result model.Vector
	for _, s := range left {
		other, there := right[s.Metric.String()]
		switch {
		case !there:
		case op == "-":
			result = append(result, &model.Sample{Metric: s.Metric, Value: s.Value - model.SampleValue(other)})
		default:
			result = append(result, &model.Sample{Metric: s.Metric, Value: s.Value / model.SampleValue(other)})
		}
	}
	return result
}

func (q *promQL) vector() model.Vector {
	switch name := q.peek(); name {
	case "sum", "count":
		return q.aggregation()
	case "rate", "increase":
		return q.change()
	case "histogram_quantile":
		q.next()
		q.want("(")
		p := q.number()
		q.want(",")
		v := q.vector()
		q.want(")")
		return quantile(p, v)
	default:
		return q.selected(q.selector(), q.after)
	}
}

// aggregation is sum or count, by labels or of all.
func (q *promQL) aggregation() model.Vector {
	op := q.next()
	var by model.LabelNames
	if q.peek() == "by" {
		q.next()
		q.want("(")
		for q.peek() != ")" {
			if by = append(by, model.LabelName(q.next())); q.peek() == "," {
				q.next()
			}
		}
		q.want(")")
	}
	q.want("(")
	v := q.vector()
	q.want(")")
	groups := map[string]*model.Sample{}
	var result model.Vector
	for _, s := range v {
		labels := model.Metric{}
		for _, name := range by {
			if value, there := s.Metric[name]; there {
				labels[name] = value
			}
		}
		group := groups[labels.String()]
		if group == nil {
			group = &model.Sample{Metric: labels}
			groups[labels.String()] = group
			result = append(result, group)
		}
		if op == "count" {
			group.Value++
		} else {
			group.Value += s.Value
		}
	}
	return result
}

// change is rate or increase: what a series that is in both scrapes went up by. One that is
// in the second alone has one sample, and Prometheus says nothing of it either.
func (q *promQL) change() model.Vector {
	op := q.next()
	q.want("(")
	keep := q.selector()
	q.want("[")
	over, err := time.ParseDuration(q.next())
	if err != nil {
		panic(err)
	}
	q.want("]")
	q.want(")")
	was := map[string]model.SampleValue{}
	for _, s := range q.selected(keep, q.before) {
		was[s.Metric.String()] = s.Value
	}
	var result model.Vector
	for _, s := range q.selected(keep, q.after) {
		first, there := was[s.Metric.String()]
		if !there {
			continue
		}
		up := s.Value - first
		if up < 0 { // it began anew
			up = s.Value
		}
		if op == "rate" {
			up /= model.SampleValue(over.Seconds())
		}
		labels := s.Metric.Clone()
		delete(labels, model.MetricNameLabel)
		result = append(result, &model.Sample{Metric: labels, Value: up})
	}
	return result
}

type matcher struct {
	label, op string
	is        *regexp.Regexp
}

var metricName = regexp.MustCompile(`^(up|(policy_service|go|target)_\w+)$`)

// selector is a name with matchers of labels.
func (q *promQL) selector() []matcher {
	name := q.next()
	if !metricName.MatchString(name) {
		panic(fmt.Sprintf("%q is neither a function that is known nor a metric", name))
	}
	keep := []matcher{{model.MetricNameLabel, "=", regexp.MustCompile("^" + name + "$")}}
	if q.peek() != "{" {
		return keep
	}
	for q.next(); q.peek() != "}"; {
		label, op := q.next(), q.next()
		value, err := strconv.Unquote(q.next())
		if err != nil {
			panic(err)
		}
		if op == "=" || op == "!=" {
			value = regexp.QuoteMeta(value)
		}
		keep = append(keep, matcher{label, op, regexp.MustCompile("^(?:" + value + ")$")})
		if q.peek() == "," {
			q.next()
		}
	}
	q.next()
	return keep
}

func (q *promQL) selected(keep []matcher, from model.Vector) (result model.Vector) {
	for _, s := range from {
		fits := func(m matcher) bool {
			return m.is.MatchString(string(s.Metric[model.LabelName(m.label)])) == !strings.HasPrefix(m.op, "!")
		}
		if !slices.ContainsFunc(keep, func(m matcher) bool { return !fits(m) }) {
			result = append(result, s)
		}
	}
	return result
}

// quantile is Prometheus' own way with buckets: it goes in a straight line within one.
func quantile(p float64, buckets model.Vector) (result model.Vector) {
	type bucket struct{ le, count float64 }
	groups, labelled := map[string][]bucket{}, map[string]model.Metric{}
	for _, s := range buckets {
		le, err := strconv.ParseFloat(string(s.Metric["le"]), 64)
		if err != nil {
			panic("a quantile needs buckets: keep le")
		}
		labels := s.Metric.Clone()
		delete(labels, "le")
		groups[labels.String()] = append(groups[labels.String()], bucket{le, float64(s.Value)})
		labelled[labels.String()] = labels
	}
	for key, all := range groups {
		slices.SortFunc(all, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
		last := len(all) - 1
		rank, value := p*all[last].count, math.NaN()
		if n := slices.IndexFunc(all, func(b bucket) bool { return b.count >= rank }); all[last].count > 0 && last > 0 {
			var from bucket
			if n > 0 {
				from = all[n-1]
			}
			if value = all[last-1].le; n < last {
				value = from.le + (all[n].le-from.le)*(rank-from.count)/(all[n].count-from.count)
			}
		}
		result = append(result, &model.Sample{Metric: labelled[key], Value: model.SampleValue(value)})
	}
	return result
}

func TestEvaluator(t *testing.T) {
	t.Parallel()
	vector := func(text string) model.Vector { return samples(t, text) }
	before := vector("go_a_total{x=\"1\"} 10\ngo_a_total{x=\"2\"} 5\ngo_b 1\n")
	after := vector("go_a_total{x=\"1\"} 40\ngo_a_total{x=\"2\"} 3\ngo_a_total{x=\"3\"} 9\ngo_b 2\n" +
		"go_h_bucket{le=\"1\"} 10\ngo_h_bucket{le=\"2\"} 20\ngo_h_bucket{le=\"+Inf\"} 20\ngo_e_bucket{le=\"1\"} 0\ngo_e_bucket{le=\"+Inf\"} 0\n")
	for expression, want := range map[string]string{
		`go_b == 2`:                            `go_b => 2`,
		`go_b == 1`:                            ``,
		`increase(go_a_total[5m])`:             `{x="1"} => 30, {x="2"} => 3`,
		`rate(go_a_total[5m]) > .1`:            ``,
		`rate(go_a_total{x="1"}[1m]) > 0.4`:    `{x="1"} => 0.5`,
		`sum(rate(go_a_total{x!="1"}[1m]))`:    `{} => 0.05`,
		`count(count by (x) (go_a_total)) > 1`: `{} => 3`,
		`sum by (x) (go_a_total) - sum by (x) (go_a_total{x=~"1|2"})`:         `{x="1"} => 0, {x="2"} => 0`,
		`sum(go_a_total{x="1"}) / sum(go_b)`:                                  `{} => 20`,
		`histogram_quantile(0.75, sum by (le) (go_h_bucket))`:                 `{} => 1.5`,
		`histogram_quantile(0.99, sum by (le) (go_e_bucket)) > 0`:             ``,
		`histogram_quantile(0.99, sum by (le) (rate(go_h_bucket[5m]))) > 0`:   ``,
		`sum by (x) (go_a_total{x="3"}) / sum by (x) (go_a_total{x="1"}) > 0`: ``,
	} {
		var got []string
		for _, s := range evaluate(t, expression, before, after) {
			got = append(got, s.Metric.String()+" => "+s.Value.String())
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: got %s, want %s", expression, text, want)
		}
	}
}
