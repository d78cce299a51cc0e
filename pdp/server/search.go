package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
	"policy-service/pdp/server/telemetry"
)

// search answers POST /access/v1/search/{subject,resource,action} and the same
// below /tenants/:tenant.
func (s *Server) search(kind evaluation.SearchKind) echo.HandlerFunc {
	return func(c echo.Context) error {
		a, err := s.door.Admit(c, door.Need{
			Permission: auth.Search,
			Tenant:     true,
			Body:       door.JSON,
			Records:    true,
			Work:       door.LongWork,
		})
		if err != nil {
			return err
		}
		defer a.Shift.End()
		span := telemetry.Stage(c.Request().Context(), "decode")
		search, err := evaluation.DecodeSearch(kind, a.Body, a.Tenant, s.config.Program.Limits)
		telemetry.EndStage(span, err)
		if err != nil {
			return err
		}
		call, token, err := s.pageOf(search, a.Caller)
		if err != nil {
			return err
		}
		call.Asker, call.GoOn = asker(c, a.Caller), a.Shift.GoOn
		ctx, cancel := s.door.Within(c)
		defer cancel()
		answer, err := s.pdp.Search(ctx, call)
		s.door.ChargeExamined(a.Caller, answer.Examined)
		if err != nil {
			return s.door.Refuse(c, err, evaluation.AuthZEN)
		}
		var page *string
		if search.Page.Sent || answer.More {
			next := ""
			if answer.More {
				next = s.pages.seal(token.next(answer.Last, s.now()), searchBinding(search, a.Caller))
			}
			page = &next
		}
		c.Response().Header().Set("X-Decision-Id", answer.ID)
		return c.Blob(http.StatusOK, "application/json", evaluation.AnswerSearch(kind, answer.Found, page))
	}
}

// pageOf says where a search goes on, and how far.
func (s *Server) pageOf(search evaluation.Search, caller auth.Caller) (pdp.SearchCall, pageToken, error) {
	token := pageToken{Limit: search.Page.Limit}
	if search.Page.Token != "" {
		opened, ok := s.pages.open(search.Page.Token, searchBinding(search, caller), s.now())
		if !ok || search.Page.Limit >= 0 && search.Page.Limit != opened.Limit {
			return pdp.SearchCall{}, token, evaluation.Malformed("this token is not for this page of this query", "send the token of the answer before with the very same query, within an hour; or begin again without a token", "page", "token")
		}
		token = opened
	}
	if token.Limit < 0 {
		token.Limit = evaluation.MaxPage
	}
	return pdp.SearchCall{Search: search, After: token.Last, Limit: token.Limit}, token, nil
}
