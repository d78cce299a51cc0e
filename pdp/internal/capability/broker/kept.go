package broker

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	store "policy-service/pdp/internal/capability"
)

// keptGrant are the questions by which a capability was granted, as the store keeps them.
type keptGrant struct {
	Questions []jsontext.Value `json:"questions"`
	// Caller asked them: of a renewal not always the one that asked for the capability.
	Caller string `json:"caller"`
	// Declared are the obligations that its asker declared, nil if it declared none in its registration.
	Declared []string `json:"declared,omitzero"`
}

// asGranted has the questions of a call in the form in which they are kept. If they are too large to be kept it has some of
// them, which are too large as well.
func asGranted(call *pdp.GrantCall) (jsontext.Value, error) {
	a := keptGrant{Caller: call.Asker.Name}
	if call.Asker.Registered {
		a.Declared = call.Asker.Obligations
	}
	for n, size := 0, 0; n < len(call.Questions) && size <= mostAsked; n++ {
		text, err := call.Questions[n].MarshalJSON()
		if err != nil {
			return nil, err
		}
		size += len(text)
		a.Questions = append(a.Questions, text)
	}
	return json.Marshal(a)
}

// keptLimits are those of questions that are kept: they were within those of the server when they were asked.
var keptLimits = func() evaluation.Limits {
	l := evaluation.DefaultLimits()
	l.Depth, l.Values = mostAsked, mostAsked
	return l
}()

// questions are the questions by which a capability was granted.
func questions(c *store.Capability) (call pdp.GrantCall, err error) {
	var a keptGrant
	if err := json.Unmarshal(c.Grant, &a); err != nil {
		return call, err
	}
	for _, text := range a.Questions {
		q, err := evaluation.DecodeAuthZEN(text, c.Tenant, keptLimits)
		if err != nil {
			return call, err
		}
		q.Shape = evaluation.Native
		call.Questions = append(call.Questions, q)
	}
	call.Asker = evaluation.Asker{Name: a.Caller, Registered: a.Declared != nil, Obligations: a.Declared}
	return call, nil
}
