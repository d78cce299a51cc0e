package server

import (
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/server/approvals"
	"policy-service/pdp/internal/server/capabilities"
	"policy-service/pdp/internal/server/door"
	"policy-service/schemas"
)

// documents are for clients without credentials, or that check signatures. They come from the configuration, never from
// the Host of a request.
type documents struct {
	*base
	keys         *ownKeys
	listeners    *listeners
	policies     *policies
	approvals    *approvals.Approvals
	capabilities *capabilities.Capabilities
}

const (
	metadataPath = "/.well-known/authzen-configuration"
	jwksPath     = "/.well-known/jwks.json"
	openAPIPath  = "/openapi.yaml"

	// maxAge is how long clients may keep a document, and so how late they learn of another public_url. Of another signing
	// key they learn sooner: one that was stolen ends with that.
	maxAge     = "public, max-age=300"
	keysMaxAge = "public, max-age=60"
	// Metadata is signed anew every hour, and a signature is good for a day: a copy kept for maxAge has most of a day
	// left. In between the bytes are the same.
	signEvery = time.Hour
	signedFor = 24 * time.Hour
	// metadataType is the typ of signed_metadata.
	metadataType = "JWT"
)

// metadata describes the PDP, as in AuthZEN 1.0, section 9.
type metadata struct {
	PolicyDecisionPoint       string `json:"policy_decision_point"`
	AccessEvaluationEndpoint  string `json:"access_evaluation_endpoint"`
	AccessEvaluationsEndpoint string `json:"access_evaluations_endpoint"`
	SearchSubjectEndpoint     string `json:"search_subject_endpoint"`
	SearchResourceEndpoint    string `json:"search_resource_endpoint"`
	SearchActionEndpoint      string `json:"search_action_endpoint"`
	AccessRequestEndpoint     string `json:"access_request_endpoint,omitempty"`
	CapabilityEndpoint        string `json:"capability_endpoint,omitempty"` // the tenant is in the body
	CapabilityTokenEndpoint   string `json:"capability_token_endpoint,omitempty"`
	CapabilityStatusEndpoint  string `json:"capability_status_endpoint,omitempty"`
	// CapabilityPolicies says whether policies look at capabilities, whichever tenant they are of: metadata must not tell
	// tenants apart. It is nil if there are no capabilities.
	CapabilityPolicies *bool  `json:"capability_policies,omitempty"`
	JWKSURI            string `json:"jwks_uri"`

	Capabilities         []string `json:"capabilities"`
	SupportedObligations []string `json:"supported_obligations"`
}

// metadata describes the PDP at point, which is the base or a tenant below it.
func (d *documents) metadata(point string) metadata {
	base, callers := d.listeners.url(), d.live.Load()
	m := metadata{
		PolicyDecisionPoint:       point,
		AccessEvaluationEndpoint:  point + "/access/v1/evaluation",
		AccessEvaluationsEndpoint: point + "/access/v1/evaluations",
		SearchSubjectEndpoint:     point + "/access/v1/search/subject",
		SearchResourceEndpoint:    point + "/access/v1/search/resource",
		SearchActionEndpoint:      point + "/access/v1/search/action",
		JWKSURI:                   base + jwksPath,
		Capabilities:              []string{evaluation.ObligationsCapability},
	}
	draft := d.policies.Bundle().Draft()
	for _, typ := range obligations.Types() {
		m.SupportedObligations = append(m.SupportedObligations, draft.Type(typ))
	}
	slices.Sort(m.SupportedObligations)
	m.SupportedObligations = slices.Compact(m.SupportedObligations)
	if d.approvals.Broker != nil && callers.credentials() {
		m.AccessRequestEndpoint = point + broker.RequestsPath
		m.Capabilities = append(m.Capabilities, evaluation.AccessRequestCapability)
	}
	if d.capabilities.Broker != nil && callers.credentials() {
		m.CapabilityEndpoint = base + capabilities.Path
		m.CapabilityStatusEndpoint = base + capabilities.StatusPath
		m.CapabilityPolicies = new(d.policies.Bundle().SeesCapability())
		m.Capabilities = append(m.Capabilities, evaluation.ToolCapability)
		if capabilities.Exchanges(callers.callers) {
			m.CapabilityTokenEndpoint = point + capabilities.TokenPath
		}
	}
	return m
}

// claims is the metadata as a JWT, which takes precedence over the metadata itself.
type claims struct {
	Issuer   string `json:"iss"`
	IssuedAt int64  `json:"iat"`
	Expires  int64  `json:"exp"`
	metadata
}

// Routes registers the routes, below the path of public_url as well. There the well-known part stands between the
// host and that path (AuthZEN 1.0, 9.2). A proxy that removes the path before it asks is understood, too.
func (d *documents) Routes(route registrar) {
	paths := []string{metadataPath, metadataPath + door.TenantPrefix}
	if path := urlPath(d.config.PublicURL); path != "" {
		paths = append(paths, metadataPath+path, metadataPath+path+door.TenantPrefix)
	}
	for _, path := range paths {
		route(path, d.describe, http.MethodGet, http.MethodHead)
	}
	openAPI, accessRequest := func() []byte { return schemas.OpenAPI }, func() []byte { return schemas.AccessRequest }
	route(jwksPath, d.serve(echo.MIMEApplicationJSON, keysMaxAge, d.keys.signing.JWKS), http.MethodGet, http.MethodHead)
	route(openAPIPath, d.serve("application/yaml", maxAge, openAPI), http.MethodGet, http.MethodHead)
	route(broker.RequestSchemaPath, d.serve("application/schema+json", maxAge, accessRequest), http.MethodGet, http.MethodHead)
}

// serve answers a document that is the same for everybody.
func (d *documents) serve(contentType, age string, content func() []byte) echo.HandlerFunc {
	return func(c echo.Context) error {
		if _, err := d.door.Recognize(c); err != nil {
			return err
		}
		body := content()
		return document(c, contentType, age, door.EntityTag(body), body)
	}
}

// describe answers metadata, of the default tenant or of the one in the path. That tenant need not exist: a caller who
// may not ask about it must not learn if it does.
func (d *documents) describe(c echo.Context) error {
	if _, err := d.door.Recognize(c); err != nil {
		return err
	}
	point := d.listeners.url()
	if point == "" {
		return door.NewProblem(http.StatusNotFound, "this server does not know by which address it is reached; the operator sets public_url")
	}
	if names := c.ParamNames(); len(names) > 0 {
		tenant := c.Param(names[0])
		if !evaluation.IsTenantName(tenant) || tenant == evaluation.DefaultTenant {
			return door.UnknownTenant(evaluation.AuthZEN)
		}
		point += "/tenants/" + tenant
	}
	body, tag, err := d.signed(point)
	if err != nil {
		return err
	}
	return document(c, echo.MIMEApplicationJSON, maxAge, tag, body)
}

// signed is the metadata with its signature, and its tag. The tag is made of all that the bytes depend on but the
// tenant: that is in the path already, and a tag must not tell tenants apart.
func (d *documents) signed(point string) (body []byte, tag string, err error) {
	keys := d.keys.signing.Current()
	now := d.door.Options.Now().Truncate(signEvery)
	m := d.metadata(point)
	payload, err := door.Marshal(claims{m.PolicyDecisionPoint, now.Unix(), now.Add(signedFor).Unix(), m})
	if err != nil {
		return nil, "", err
	}
	jws, err := keys.Sign(payload, metadataType)
	if err != nil {
		return nil, "", err
	}
	body, err = door.Marshal(struct {
		metadata
		Signed string `json:"signed_metadata"`
	}{m, jws})
	if err != nil {
		return nil, "", err
	}
	// claims only lists what the tag depends on here: the key, the hour, and the metadata without the tenant.
	form, err := door.Marshal(claims{keys.KeyID(), now.Unix(), 0, d.metadata(d.listeners.url())})
	return body, door.EntityTag(form), err
}

// document answers a document that a client may keep, or 304 if the client has it already.
func document(c echo.Context, contentType, age, tag string, body []byte) error {
	header := c.Response().Header()
	header.Set("Cache-Control", age)
	header.Set("ETag", tag)
	if door.Matches(c.Request().Header.Values("If-None-Match"), tag) {
		return c.NoContent(http.StatusNotModified)
	}
	return c.Blob(http.StatusOK, contentType, body)
}
