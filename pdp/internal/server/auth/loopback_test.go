package auth

import "testing"

func TestLoopbackHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost:80": true, "127.0.0.1": true, "127.255.0.9:65535": true, "[::1]": true, "[::1]:80": true,
		"": false, ":80": false, "localhost.": false, "x.localhost": false, "localhost:http": false, "localhost:": false,
		"localhost:70000": false, "127.0.0.1.evil": false, "127.1": false, "2130706433": false, "0.0.0.0": false, "128.0.0.1": false,
		"::1": false, "[::1": false, "::1]": false, "[::1%lo]": false, "[127.0.0.1]": false, "[::2]": false, "[]": false,
		"localhost:80:80": false, "evil@localhost": false, "localhost/": false, " localhost": false,
	} {
		if got := loopbackHost(host); got != want {
			t.Errorf("%q: got %v, want %v", host, got, want)
		}
	}
}
