package mcp

// IdentityConfig says for whom requests are.
type IdentityConfig struct {
	// Issuers are believed. Without one there is Static.
	Issuers []IssuerConfig `yaml:"issuers" min:"1" doc:"Issuers whose access tokens the gateway takes."`
	// SubjectClaim and AgentClaim are names of claims, or JSON Pointers into them.
	SubjectClaim string `yaml:"subject_claim" default:"sub" doc:"The claim that says who the person is: a name, or a JSON Pointer such as /act/sub."`
	AgentClaim   string `yaml:"agent_claim" default:"client_id" doc:"The claim that says which agent asks: a name, or a JSON Pointer."`
	// Properties are claims that policies see.
	Properties []string `yaml:"properties" doc:"The claims that policies see as properties of the person. roles and department_id unless given."`
	Scopes     []string `yaml:"scopes" min:"1" doc:"The scopes that clients are told to ask for. Whether a token has them, nobody looks: policies decide. None unless given."`
	// Static is the identity of everybody, where only one person can come.
	Static *StaticConfig `yaml:"static" doc:"The one identity of every request, without a token: for --stdio, and for a gateway on loopback that only you use. It takes the place of issuers."`
}

// IssuerConfig is an issuer of access tokens.
type IssuerConfig struct {
	Issuer     string   `yaml:"issuer" required:"yes" doc:"The claim iss of the tokens, byte for byte. OIDC discovery begins at this address."`
	Audience   string   `yaml:"audience" doc:"What the claim aud of the tokens must contain, if that is not resource."`
	Algorithms []string `yaml:"algorithms" required:"yes" min:"1" enum:"RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,ES512,EdDSA" doc:"The signature algorithms that the gateway accepts."`
	JWKSFile   string   `yaml:"jwks_file" doc:"The issuer's public keys, as a JWK Set. A changed file takes effect without a restart. Without it, the keys come by OIDC discovery."`
	// Tenant, the types and IDPrefix keep the people of several issuers apart.
	Tenant      string `yaml:"tenant" doc:"The tenant whose policies decide about holders of these tokens, in place of pdp.tenant."`
	SubjectType string `yaml:"subject_type" doc:"The type of the entity that a person is to policies. user unless given."`
	AgentType   string `yaml:"agent_type" doc:"The type of the entity that an agent is to policies. agent unless given."`
	IDPrefix    string `yaml:"id_prefix" doc:"What the ids of people and agents of this issuer begin with in policies. Nothing unless given."`
}

// StaticConfig is an identity that no token says.
type StaticConfig struct {
	Sub      string `yaml:"sub" required:"yes" doc:"Who the person is."`
	ClientID string `yaml:"client_id" doc:"Which agent asks. Without it the person asks alone."`
	Issuer   string `yaml:"iss" doc:"Whose name sub is: the issuer by whose tokens the same person decides about approvals, so that nobody approves what their own agent wants. resource unless given."`
}
