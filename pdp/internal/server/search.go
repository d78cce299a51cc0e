package server

import (
	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/server/door"
)

// answerSearch asks the PDP for one page of a search.
func (d *decisionRoutes) answerSearch(c echo.Context, a door.Admitted, search evaluation.Search) error {
	now, binding := d.door.Options.Now(), searchBinding(search, a.Caller)
	token, err := d.keys.pages.begin(search.Page, binding, now)
	if err != nil {
		return err
	}
	ctx, cancel := d.door.Within(c)
	defer cancel()
	answer, err := d.policies.Search(ctx, pdp.SearchCall{
		Search: search,
		Asker:  d.asker(c, &a.Caller),
		After:  token.Last,
		Limit:  token.Limit,
		GoOn:   a.Shift.GoOn,
	})
	d.door.ChargeExamined(a.Caller, answer.Examined)
	if err != nil {
		return d.door.Refuse(c, err, evaluation.AuthZEN)
	}
	var next *string
	if answer.More {
		sealed := d.keys.pages.seal(token.next(answer.Last, d.door.Options.Now()), binding)
		next = &sealed
	} else if search.Page.Sent {
		next = new(string)
	}
	return d.answerJSON(c, answer.ID, "", evaluation.AnswerSearch(search.Kind, answer.Draft, answer.Found, next))
}
