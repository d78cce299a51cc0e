package approval

import (
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/obligations"
)

// terms are [obligations.Terms] as they are stored: the names in a file are its format's.
type terms struct {
	Template  string        `json:"template"`
	Quorum    int           `json:"quorum"`
	Timeout   time.Duration `json:"timeout"`
	ValidFor  time.Duration `json:"valid_for"`
	Uses      int           `json:"uses"`
	Material  []string      `json:"material,omitzero"`
	Message   string        `json:"message,omitzero"`
	Delegable bool          `json:"delegable,omitzero"`
}

// durations are written as 1h0m0s.
var (
	durations = json.MarshalFunc(func(d time.Duration) ([]byte, error) { return json.Marshal(d.String()) })
	spans     = json.UnmarshalFunc(func(text []byte, d *time.Duration) error {
		var s string
		err := json.Unmarshal(text, &s)
		if err == nil {
			*d, err = time.ParseDuration(s)
		}
		return err
	})

	asStored = json.WithMarshalers(json.JoinMarshalers(durations,
		json.MarshalFunc(func(t obligations.Terms) ([]byte, error) {
			return json.Marshal(terms(t), json.WithMarshalers(durations))
		})))
	fromStored = json.JoinOptions(json.RejectUnknownMembers(true), json.WithUnmarshalers(json.JoinUnmarshalers(spans,
		json.UnmarshalFunc(func(text []byte, t *obligations.Terms) error {
			return json.Unmarshal(text, (*terms)(t), json.RejectUnknownMembers(true), json.WithUnmarshalers(spans))
		}))))
)
