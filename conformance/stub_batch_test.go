package conformance

import "maps"

// The stub's batches.

func (s *stub) batch(o object) (any, error) {
	f := &fields{stub: s}
	options := f.object(o, "", "options", false)
	semantic := "execute_all"
	if _, ok := f.get(options, "evaluations_semantic"); ok {
		semantic = f.text(options, "/options", "evaluations_semantic")
	}
	items, given := f.get(o, "evaluations")
	list, isArray := items.([]any)
	if given && !isArray {
		f.fail("not an array", "/evaluations")
	}
	if semantic != "execute_all" && semantic != "deny_on_first_deny" && semantic != "permit_on_first_permit" {
		f.fail("no such semantic", "/options/evaluations_semantic")
	}
	if len(list) == 0 && f.err == nil {
		q, err := s.question(o, "")
		return decision(q), err
	}
	for _, name := range []string{"subject", "action", "resource", "context"} {
		f.object(o, "", name, false)
	}
	if f.err != nil {
		return nil, f.err
	}
	answers := []stubDecision{}
	for _, item := range list {
		d, err := s.item(o, item)
		if err != nil && s.wholeBatchFails {
			return nil, err
		}
		answers = append(answers, d)
		if !s.startsOver && (semantic == "deny_on_first_deny" && !d.Decision || semantic == "permit_on_first_permit" && d.Decision) {
			if s.dropsShortCircuit {
				answers = answers[:len(answers)-1]
			}
			break
		}
	}
	return object{"evaluations": answers}, nil
}

// item decides one item beside its defaults.
func (s *stub) item(defaults object, item any) (stubDecision, error) {
	own, ok := item.(object)
	q, err := stubQuestion{}, wrong("not an object", "")
	if ok {
		whole := object{}
		for _, name := range []string{"subject", "action", "resource", "context"} {
			whole[name] = s.inherit(name, defaults[name], own[name])
		}
		q, err = s.question(whole, "")
	}
	if err != nil {
		return stubDecision{Context: object{"error": object{"status": 400, "message": err.Error()}}}, err
	}
	return decision(q), nil
}

// inherit replaces a default whole, but for the names that an entity lacks.
func (s *stub) inherit(name string, inherited, own any) any {
	if own == nil && !s.ignoresDefaults {
		return inherited
	}
	o, isObject := own.(object)
	from, _ := inherited.(object)
	if !isObject || name == "context" || s.ignoresDefaults {
		return own
	}
	merged := object{}
	for _, member := range []string{"type", "id", "name"} {
		if v, ok := from[member]; ok && !s.keepsOnlyID {
			merged[member] = v
		}
	}
	maps.Copy(merged, o)
	if theirs, ok := from["properties"].(object); ok && s.mergesProperties {
		both := maps.Clone(theirs)
		ours, _ := o["properties"].(object)
		maps.Copy(both, ours)
		merged["properties"] = both
	}
	return merged
}
