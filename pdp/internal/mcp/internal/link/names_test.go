package link

import (
	"regexp"
	"strings"
	"testing"
)

func TestToolNames(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, test := range []struct{ server, tool, want string }{
		{"jira", "create_ticket", "jira__create_ticket"},
		{"jira", "_create", "jira___create"},
		{"jira", "__x", "jira____x"},
		{"_a", "b", "_a__b"},
		{"a-b", "C-9", "a-b__C-9"},
		{"a", long[:61], "a__" + long[:61]},
		{"a", long[:62], "a__" + long[:52] + "_3dc1a6c6"},
		{"a", "b.c", "a__b_c_06a090a5"},
		{"a", "b c", "a__b_c_3df2467e"},
		{"a", "b:c", "a__b_c_b0ee04f8"},
		{"a", "sеarch", "a__s_arch_f2ec301e"}, // with a Cyrillic е
		{"a", "searc\u200bh", "a__searc_h_7825e73e"},
		{"a", "日本", "a_____859cc12a"},
		{strings.Repeat("s", 32), long, strings.Repeat("s", 32) + "__" + long[:21] + "_eb00e0c3"},
	} {
		if got := ToolName(test.server, test.tool); got != test.want {
			t.Errorf("%s of %s: %s, want %s", test.tool, test.server, got, test.want)
		}
	}
}

var (
	taken      = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	serverName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
)

// For all names that servers give their tools, a name for clients is legal and leads back to its server. No two servers share
// a name, even if case is ignored. A server has one name for two of its tools only if both names are shortened.
func FuzzToolNames(f *testing.F) {
	for _, s := range []string{"look", "b__look", "_look", "__", "a.b", "a b", strings.Repeat("y", 70), "é", "b_c_06a090a5"} {
		f.Add("a", s, "b", "look")
		f.Add("a", s, "a", "LOOK")
		f.Add("a_b", s, "A", "b__look")
		f.Add("_a", s, "a", "_"+s)
	}
	legal := func(server string) bool {
		return serverName.MatchString(server) && !strings.Contains(server, "__") && !strings.HasSuffix(server, "_")
	}
	f.Fuzz(func(t *testing.T, server, tool, server2, tool2 string) {
		if !legal(server) || !legal(server2) || tool == "" || tool2 == "" {
			return // the configuration has no such server, and the list no such tool
		}
		one, two := ToolName(server, tool), ToolName(server2, tool2)
		for of, name := range map[string]string{server: ToolName(server, tool), server2: ToolName(server2, tool2)} {
			if got, _, ok := Apart(name); !taken.MatchString(name) || !ok || got != of {
				t.Errorf("%q of %q leads to %q", name, of, got)
			}
		}
		if !strings.EqualFold(server, server2) && strings.EqualFold(one, two) {
			t.Errorf("%q and %q of two servers", one, two)
		}
		if server == server2 && tool != tool2 && one == two && isPlain(server+between+tool) && isPlain(server2+between+tool2) {
			t.Errorf("%q is the name of %q and %q", one, tool, tool2)
		}
		if of, rest, _ := Apart(PromptName(server, tool)); of != server || rest != tool {
			t.Errorf("the prompt %q of %q is %q of %q", tool, server, rest, of)
		}
	})
}
