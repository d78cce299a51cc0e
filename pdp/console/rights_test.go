package console_test

import (
	"net/http"
	"strings"
	"testing"
)

// rightsActions are what a person can say about an approval request, each as the API takes it.
var rightsActions = []struct{ name, path, body string }{
	{"approve", "decision", rightsYes},
	{"deny", "decision", rightsNo},
	{"delegate", "decision", `{"decision":"delegate","to":"user::\"zed\"","reason":"better you"}`},
	{"revoke", "revoke", `{"reason":"it was wrong"}`},
}

func TestRightsAPI(t *testing.T) {
	people := rightsPeople()
	w := openRights(t, people)
	rightsMust(t, w.keys.Revoke("revoked"))
	for _, s := range rightsStates() {
		id := w.makes(s)
		for _, p := range people {
			got := w.api(p.name, http.MethodGet, "/v1/approvals/"+id, "")
			line := []string{}
			for _, a := range rightsActions {
				r := w.api(p.name, http.MethodPost, "/v1/approvals/"+id+"/"+a.path, a.body)
				line = append(line, a.name, http.StatusText(r.Status))
				if r.Status == 200 {
					id = w.makes(s)
				}
			}
			t.Log(s.name, "|", p.name, "|", got.Status, strings.Join(line, " "))
		}
	}
}
