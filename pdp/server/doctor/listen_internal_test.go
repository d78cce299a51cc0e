package doctor

import "testing"

func TestReachable(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		":8180": "127.0.0.1:8180", "0.0.0.0:1": "127.0.0.1:1", "[::]:1": "[::1]:1", "10.0.0.7:1": "10.0.0.7:1", "localhost:1": "localhost:1",
	} {
		if got := reachable(listen); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}
