package inbox_test

import (
	"slices"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval/inbox"
)

// Who is asked, why, and what they may do.
func TestBesideARequest(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	c.asks("push", "pull")
	id := c.ids()["push"]
	mia, pep := c.inbox("mia", c.URL), c.inbox("pep", c.URL)

	me, err := mia.Me(t.Context())
	must(t, err)
	if me.Caller != "key:mia" || me.Principal != `user::"mia"` || !slices.Equal(me.Tenants, []string{"*"}) {
		t.Errorf("got %+v", me)
	}
	why, err := mia.Why(t.Context(), id)
	must(t, err)
	if why.Obligation.Name != "ask" || why.Obligation.At != "obligations.yaml:1:1" || len(why.Policies) != 1 || why.Policies[0] != (evaluation.PolicyPlace{ID: "ask", At: "a.cedar:1:1"}) ||
		!slices.Equal(why.You.May, []string{"approve", "deny", "delegate"}) || len(why.You.Not) != 2 || why.You.Not[0].Decision != "revoke" || why.You.Not[0].Detail == "" {
		t.Errorf("got %+v", why)
	}
	why, err = pep.Why(t.Context(), id)
	must(t, err)
	if why.Obligation.Name != "ask" || why.Obligation.At != "" || why.Policies != nil || !slices.Equal(why.You.May, []string{"cancel"}) || len(why.You.Not) != 4 {
		t.Errorf("got %+v", why)
	}

	_, err = mia.Decide(t.Context(), id, inbox.Ruling{Decision: "delegate", To: `user::"eve"`, Reason: "away"})
	must(t, err)
	deciders, err := mia.Deciders(t.Context(), id)
	must(t, err)
	if !slices.Equal(deciders.Items, []string{`user::"eve"`}) || deciders.More {
		t.Errorf("got %+v", deciders)
	}
	if deciders, err := pep.Deciders(t.Context(), id); err != nil || len(deciders.Items) > 0 || !deciders.More {
		t.Errorf("got %+v, %v", deciders, err)
	}
	if _, found, err := mia.Previous(t.Context(), id); found || err != nil {
		t.Errorf("got %v, %v", found, err)
	}

	for voted, want := range map[bool]string{true: "push", false: "pull"} {
		page, err := mia.List(t.Context(), inbox.Filter{Voted: &voted}, "", 10)
		must(t, err)
		if len(page.Items) != 1 || page.Items[0].Request.Resource.ID != want || page.Next != "" {
			t.Errorf("voted %v: got %+v", voted, page)
		}
	}

	_, err = c.inbox("mia", c.URL).Decide(t.Context(), c.ids()["pull"], inbox.Ruling{Decision: "deny", Reason: "no"})
	must(t, err)
	c.asks("pull")
	again, found, err := mia.Previous(t.Context(), c.ids()["pull"])
	if err != nil || !found || again.Status != "denied" || again.Request.Resource.ID != "pull" {
		t.Errorf("got %+v, %v, %v", again, found, err)
	}
}
