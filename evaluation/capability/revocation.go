package capability

import "policy-service/evaluation"

// Revocation is the body of a request to revoke many capabilities of a tenant: all of them, or those that fit each of the
// other members that are given.
type Revocation struct {
	Tenant   string
	Holder   evaluation.Ref // the zero value for any
	Person   string         // for whom they were granted, "" for any
	JKT      string         // the thumbprint of a holder's key, "" for any
	Audience string         // "" for any
	All      bool
	Reason   string // for the record
}

// DecodeRevocation reads the body of a request to revoke many capabilities. An error is an [*evaluation.Error].
func DecodeRevocation(body []byte, limits evaluation.Limits) (Revocation, error) {
	o, err := evaluation.ParseObject(body, limits)
	if err != nil {
		return Revocation{}, err
	}
	var r reader
	r.only(o, nil, "tenant_id", "holder", "person", "jkt", "audience", "all", "reason")
	v := Revocation{
		Tenant:   r.text(o, maxName, true, "tenant_id"),
		Person:   r.text(o, maxName, true, "person"),
		JKT:      r.text(o, maxName, true, "jkt"),
		Audience: r.text(o, maxName, true, "audience"),
		Reason:   r.text(o, maxReason, false, "reason"),
	}
	if holder, there := o.Get("holder"); there {
		r.only(holder.Object(), []string{"holder"}, "type", "id")
		v.Holder = r.ref(o, "holder")
	}
	if all, there := o.Get("all"); there {
		v.All = r.want(all.True(), "not true; leave it out to revoke some", "all")
	}
	some := v.Holder != evaluation.Ref{} || v.Person != "" || v.JKT != "" || v.Audience != ""
	r.want(v.All || some, "missing, and so are holder, person, jkt and audience; give one of them, or all: true", "all")
	r.want(!v.All || !some, "given beside holder, person, jkt or audience; leave it out, or them", "all")
	if r.err != nil {
		return Revocation{}, r.err
	}
	return v, nil
}
