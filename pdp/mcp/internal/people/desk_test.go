package people_test

import "testing"

func TestDeskHears(t *testing.T) {
	o := newOffice(t)
	d, c := o.desk(), o.client()
	for what, status := range map[string]string{"approve": "approved", "deny": "denied"} {
		s := o.asks(c, len(what))
		f := d.Follow(c, s)
		pending(t, f)
		o.says(what, s.Approvals()[0])
		if got := decided(t, f); got.Status() != status || got.Approved() != (what == "approve") {
			t.Errorf("%s: %v", what, got)
		}
		f.Stop()
	}
}
