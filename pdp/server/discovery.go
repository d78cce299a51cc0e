package server

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/approval/broker"
	"policy-service/pdp/server/door"
)

// Documents that a client reads before it has credentials, or to check signatures.
// They say what the configuration says, never what the request's Host does.

const (
	metadataPath = "/.well-known/authzen-configuration"
	jwksPath     = "/.well-known/jwks.json"
	openAPIPath  = "/openapi.yaml"

	// maxAge is for how long clients may keep a document, and so how late they hear
	// of another public_url or of a new signing key.
	maxAge = "public, max-age=300"
	// Metadata is signed anew so often, and each signature counts so long: a copy
	// kept for maxAge always has most of a day left. In between the bytes are the same.
	signEvery = time.Hour
	signedFor = 24 * time.Hour
	// metadataType is the typ of signed_metadata.
	metadataType = "JWT"
)

// metadata is what AuthZEN 1.0, section 9, has a PDP say of itself. capabilities is left
// out while there are none.
type metadata struct {
	PolicyDecisionPoint       string `json:"policy_decision_point"`
	AccessEvaluationEndpoint  string `json:"access_evaluation_endpoint"`
	AccessEvaluationsEndpoint string `json:"access_evaluations_endpoint"`
	SearchSubjectEndpoint     string `json:"search_subject_endpoint"`
	SearchResourceEndpoint    string `json:"search_resource_endpoint"`
	SearchActionEndpoint      string `json:"search_action_endpoint"`
	AccessRequestEndpoint     string `json:"access_request_endpoint,omitempty"`
	JWKSURI                   string `json:"jwks_uri"`

	Capabilities         []string `json:"capabilities,omitempty"`
	SupportedObligations []string `json:"supported_obligations"`
}

// newMetadata describes the PDP at point, which is base or a tenant below it.
func newMetadata(base, point string, requests bool) metadata {
	m := metadata{
		PolicyDecisionPoint:       point,
		AccessEvaluationEndpoint:  point + "/access/v1/evaluation",
		AccessEvaluationsEndpoint: point + "/access/v1/evaluations",
		SearchSubjectEndpoint:     point + "/access/v1/search/subject",
		SearchResourceEndpoint:    point + "/access/v1/search/resource",
		SearchActionEndpoint:      point + "/access/v1/search/action",
		JWKSURI:                   base + jwksPath,
		SupportedObligations:      obligations.Types(),
	}
	if requests {
		m.AccessRequestEndpoint, m.Capabilities = point+broker.RequestsPath, []string{evaluation.AccessRequestCapability}
	}
	return m
}

// claims is the metadata as a JWT, which takes precedence over it.
type claims struct {
	Issuer   string `json:"iss"`
	IssuedAt int64  `json:"iat"`
	Expires  int64  `json:"exp"`
	metadata
}

// discovery answers metadata, of the default tenant or of one in the path. That
// tenant need not exist: who may not ask it must not learn whether it does.
func (s *Server) discovery(c echo.Context) error {
	if _, err := s.door.Recognize(c); err != nil {
		return err
	}
	base := s.base()
	if base == "" {
		return door.NewProblem(http.StatusNotFound, "this server does not know by which address it is reached; the operator sets public_url")
	}
	point := base
	if names := c.ParamNames(); len(names) > 0 {
		tenant := c.Param(names[0])
		if !evaluation.IsTenantName(tenant) || tenant == evaluation.DefaultTenant {
			return door.UnknownTenant(evaluation.AuthZEN)
		}
		point = base + "/tenants/" + tenant
	}
	body, tag, err := s.metadata(base, point)
	if err != nil {
		return err
	}
	return document(c, "application/json", tag, body)
}

// metadata is the document and its tag. The tag is made of all that the bytes depend
// on but the tenant: that is in the path already, and a tag must not tell tenants apart.
func (s *Server) metadata(base, point string) (body []byte, tag string, err error) {
	keys := s.signing.Current()
	now := s.now().Truncate(signEvery)
	m := newMetadata(base, point, s.takesRequests())
	signed, err := door.Marshal(claims{m.PolicyDecisionPoint, now.Unix(), now.Add(signedFor).Unix(), m})
	if err != nil {
		return nil, "", err
	}
	jws, err := keys.Sign(signed, metadataType)
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
	form, err := door.Marshal(claims{keys.KeyID(), now.Unix(), 0, newMetadata(base, base, s.takesRequests())})
	return body, entityTag(form), err
}

// takesRequests is whether anybody may ask for access: without credentials nobody is known.
func (s *Server) takesRequests() bool { return s.approvals != nil && s.credentials() }

// discoveryRoutes are the paths of metadata. The well-known part stands between the
// host and the path of public_url (AuthZEN 1.0, 9.2); a proxy that takes the path away
// before it asks is understood too.
func (s *Server) discoveryRoutes() []string {
	paths := []string{metadataPath, metadataPath + door.TenantPrefix}
	if path := urlPath(s.config.PublicURL); path != "" {
		paths = append(paths, metadataPath+path, metadataPath+path+door.TenantPrefix)
	}
	return paths
}
