package visible_test

import (
	"fmt"
	"strings"
	"testing"

	"policy-service/pdp/internal/visible"
	"policy-service/pdp/pdptest/night"
)

func TestLike(t *testing.T) {
	t.Parallel()
	known := visible.NewKnown([]string{
		"github.push_code", "main", "lead", "Admin", "paypal", "worm", "vow", "User::\"lead\"", "café", "100", "rm -rf", "a/b", "file", "all", "app-ios", "main",
		"привет", "İzmir",
	})
	for id, want := range map[string]string{
		"ma\u0456n": "main", "\u043c\u0430\u0456n": "main", "MAIN": "main", "Main": "main", "ma1n": "", "maln": "", "MAlN": "main", "ma\u200bin": "main",
		"main\u00a0": "main", "main ": "main", " main": "main", "main\x00": "main", "\uff4d\uff41\uff49\uff4e": "main",
		"\U0001d5fa\U0001d5ee\U0001d5f6\U0001d5fb": "main", "\u24dc\u24d0\u24d8\u24dd": "main", "\U0001f13c\U0001f130\U0001f138\U0001f13d": "main",
		"\U0001f15c\U0001f150\U0001f158\U0001f15d": "main", "\u1d0d\u1d00\u026a\u0274": "main", "\u1d50\u1d43\u2071\u207f": "main",
		"rnain": "main", "ma\u0131n": "main", "main\U000e0041": "main", "main\ufe0f": "main", "m\u034fain": "main",
		"\u0440\u0430\u0443\u0440\u0430\u04cf": "paypal", "paypa1": "paypal", "paypaI": "paypal", "PAYPA1": "paypal", "pаypaІ": "paypal", "paypa|": "paypal",
		"github.push_c0de": "github.push_code", "github\u2024push_code": "github.push_code", "github.push\u2017code": "github.push_code",
		"github\uff0epush\uff3fcode": "github.push_code", "github.push_c\u03bfde": "github.push_code", "GitHub.Push_Code": "github.push_code",
		"github.push\u02cdcode": "github.push_code",
		"1ead":                  "lead", "Iead": "lead", "\u2113ead": "lead", "\u217cead": "lead", "\u01c0ead": "lead", "le\u0430d\u200b": "lead",
		"adrnin": "Admin", "ADMlN": "Admin", "\u0410dmin": "Admin", "wonn": "", "worn": "", "vvorm": "worm", "vovv": "vow", "\u0475ow": "vow",
		"User\ua789\ua789\u201clead\u201d": "User::\"lead\"", "cafe\u0301": "café", "cafe": "", "CAFÉ": "café",
		"1oo": "100", "l00": "100", "\U0001d7cf\U0001d7ce\U0001d7ce": "100", "\uff11\uff10\uff10": "100", "1\u03bf0": "100",
		"rm \u2212rf": "rm -rf", "rm \u2013rf": "rm -rf", "rm\u00a0-rf": "rm -rf", "a\u2044b": "a/b", "a\u2215b": "a/b", "a\u29f8b": "a/b",
		"\ufb01le": "file", "ai1": "", "al1": "all", "aII": "all", "\u0251ll": "all", "app\u2010ios": "app-ios", "ПРИВЕТ": "привет",
		"izmir": "İzmir",

		"main": "", "lead": "", "Admin": "", "café": "", "привет": "", "": "", " ": "", "\u200b": "", "other": "", "mains": "", "ma-in": "", "日本": "", "naïve": "",
	} {
		got, alike := known.Like(id)
		if got != want || alike != (want != "") {
			t.Errorf("%q looks like %q (%v), want %q", id, got, alike, want)
		}
	}
	for _, none := range []*visible.Known{nil, {}, visible.NewKnown(nil), visible.NewKnown([]string{"", "\u200b"})} {
		if got, alike := none.Like("x"); alike {
			t.Errorf("x looks like %q", got)
		}
		if got, alike := none.Like("\u200b\u200c"); alike {
			t.Errorf("nothing looks like %q", got)
		}
	}
}

// Of several that look the same the first is told, however they were given.
func TestLikeIsDeterministic(t *testing.T) {
	t.Parallel()
	ids := []string{"MAIN", "main", "Main", "ma\u0456n"}
	for n := range ids {
		turned := append(ids[n:len(ids):len(ids)], ids[:n]...)
		if got, _ := visible.NewKnown(turned).Like("mAiN"); got != "MAIN" {
			t.Errorf("%q: %q", turned, got)
		}
	}
}

func TestManyKnown(t *testing.T) {
	t.Parallel()
	ids := make([]string, night.Cases(100_000))
	for n := range ids {
		ids[n] = fmt.Sprintf("tool/server-%d.push_code_%d", n%100, n)
	}
	known := visible.NewKnown(ids)
	for n := 0; n < len(ids); n += 97 {
		if got, alike := known.Like(strings.Replace(ids[n], "o", "\u043e", 1)); got != ids[n] || !alike {
			t.Errorf("%q: %q", ids[n], got)
		}
	}
	if got, alike := known.Like(strings.Repeat("\ufdfa", 2000)); alike {
		t.Error(got)
	}
}

func BenchmarkKnown(b *testing.B) {
	ids := make([]string, 100_000)
	for n := range ids {
		ids[n] = fmt.Sprintf("tool/server-%d.push_code_%d", n%100, n)
	}
	b.Run("made of 100,000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			visible.NewKnown(ids)
		}
	})
	known := visible.NewKnown(ids)
	b.Run("asked", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			known.Like("tool/server-7.push_c\u043ede_7")
		}
	})
}

// TestSkeletonHasNoMarks: neither on letters nor around them.
func TestSkeletonHasNoMarks(t *testing.T) {
	for _, text := range []string{"PIN", "PI\u0301N", "P\u20e3IN", "PI\u20ddN", "P\u093eIN", "\u0420IN", "ＰＩＮ"} {
		if got := visible.Skeleton(text); got != "PIN" {
			t.Errorf("%+q is %+q", text, got)
		}
	}
}
