package rates

import "time"

type Limiter struct{}
type Options struct {
	Rate, ToolRate               float64
	Burst, Concurrent, ToolBurst int
	Now                          func() time.Time
}

func New(o Options) *Limiter                                              { return &Limiter{} }
func (l *Limiter) Admit(key, tool string) (func(), time.Duration, bool) { return func() {}, 0, true }
