package pep

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
)

// ask asks the PDP, and is nil only for a permit of everything that was asked.
func (s *stub) ask(endpoint string, body []byte, count int) error {
	r, err := http.NewRequest(http.MethodPost, s.wiring.PDP+endpoints+endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if s.wrong["shows the token to the PDP"] {
		r.Header.Set("Authorization", "Bearer "+*s.bearer.Load())
	}
	if s.failed.Load() && s.wrong["permits while it keeps away from the PDP"] {
		return nil
	}
	resp, err := s.client.Do(r)
	s.failed.Store(err != nil || resp.StatusCode != http.StatusOK)
	if err != nil {
		return s.without("permits if the PDP is down")
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return s.without("permits what it cannot read")
	}
	if bytes.Contains(text, []byte(`"decision":true`)) && s.wrong["looks for true anywhere"] {
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		return s.without("permits if the PDP fails")
	}
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if (err != nil || mediaType != "application/json") && !s.wrong["takes any content type of the PDP"] {
		return errUnavailable
	}
	answer, err := parseObject(text)
	if s.wrong["reads the PDP's JSON laxly"] {
		answer, err = laxObject(text), nil
	}
	if err != nil {
		return s.without("permits what it cannot read")
	}
	if endpoint == "evaluation" || count == 1 && answer["evaluations"] == nil {
		return s.decided(answer)
	}
	if answer["decision"] != nil && s.wrong["takes one decision for all"] {
		return s.decided(answer)
	}
	list, _ := answer["evaluations"].([]any)
	lax := s.wrong["does not count decisions"] && len(list) > 0 || s.wrong["takes no entries for a permit"] && len(list) == 0
	if len(list) != count && !lax {
		return errUnavailable
	}
	for _, one := range list {
		o, ok := one.(object)
		if !ok && s.wrong["passes over odd decisions"] {
			continue
		}
		if err := s.decided(o); err != nil {
			return err
		}
		if s.wrong["asks the first of a batch only"] {
			return nil
		}
	}
	return nil
}

// without is what comes of no decision.
func (s *stub) without(fault string) error {
	if s.wrong[fault] {
		return nil
	}
	return errUnavailable
}

func (s *stub) decided(o object) error {
	decision, ok := o["decision"].(bool)
	if v := o["decision"]; !ok && s.wrong["takes what is not false for true"] && v != nil && v != "false" {
		return nil
	}
	if upper, _ := o["Decision"].(bool); upper && s.wrong["takes decisions in any case"] {
		return nil
	}
	obliged, _ := member(o, "context", "obligations").([]any)
	switch {
	case len(obliged) > 0 && !s.wrong["passes over obligations"], o["context"] != nil && s.wrong["takes a context for a deny"]:
		return errDenied
	case !ok && s.wrong["passes over odd decisions"]:
		return nil
	case !ok && s.wrong["denies without a decision"]:
		return errDenied
	case !ok:
		return errUnavailable
	case decision || s.wrong["permits everything"]:
		return nil
	}
	return errDenied
}

// laxObject reads JSON as encoding/json does: of two members the last counts, and what follows is not looked at.
func laxObject(text []byte) object {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v map[string]any
	if d.Decode(&v) != nil {
		return object{}
	}
	return numbers(v).(object)
}

func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			v[name] = numbers(inner)
		}
	case []any:
		for n, inner := range v {
			v[n] = numbers(inner)
		}
	case json.Number:
		return number(v)
	}
	return v
}
