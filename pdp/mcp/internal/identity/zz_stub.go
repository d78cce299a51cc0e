package identity

import (
	"context"
	"net/http"
)

type Identity struct{}
type Challenge struct {
	Status         int
	Header, Detail string
}

func (i *Identity) Authenticate(r *http.Request) (*Principal, *Challenge) { return nil, nil }
func (i *Identity) MetadataPaths() []string                             { return nil }
func (i *Identity) Metadata() []byte                                     { return nil }
func (p *Principal) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctx, nil
}
