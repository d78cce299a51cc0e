package conformance

// Plan is a set of cases that a PDP can be held to by itself.
type Plan struct {
	Name, Title string
	// Spec is set where the published documents alone demand what is asked, so
	// that any AuthZEN PDP can be judged.
	Spec bool
}

// Plans returns all plans, in the order in which they are asked.
func Plans() []Plan {
	return []Plan{
		{"basic-core", "Certification, Basic Core", true},
		{"basic-properties", "Certification, Basic Properties", true},
		{"batch-core", "Certification, Batch Core", true},
		{"batch-properties", "Certification, Batch Properties", true},
		{"search-core", "Certification, Search Core", true},
		{"search-properties", "Certification, Search Properties", true},
		{"discovery", "Certification, Discovery", true},
		{"evaluation", "The specification: Access Evaluation", true},
		{"batch", "The specification: Access Evaluations, defaults and semantics", true},
		{"search", "The specification: what a search takes and gives", true},
		{"pages", "The specification: pagination", true},
		{"headers", "The specification: headers and media types", true},
		{"negative", "The specification: requests that are wrong", true},
		{"authentication", "The specification: callers without a credential", true},
		{"todo", "Interop: Todo", true},
		{"search-interop", "Interop: Search", true},
		{"gateway", "Interop: API gateway", true},
		{"access-request", "Profile: Access Request and Approval, from outside", true},
		{"strict", "policy-service: what it promises beyond the specification", false},
		{"native", "policy-service: the tenant/actor/resource shape", false},
	}
}
