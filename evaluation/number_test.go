package evaluation_test

import (
	"strings"
	"testing"

	"policy-service/evaluation"
)

// number decodes one number of a body.
func number(t testing.TB, literal string) evaluation.Value {
	t.Helper()
	r, err := evaluation.DecodeAuthZEN([]byte(in(`{"n":`+literal+`}`)), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatalf("%.40s: %v", literal, err)
	}
	v, _ := r.Context.Get("n")
	return v
}

func TestScaled(t *testing.T) {
	t.Parallel()
	const no = 424242 // stands for: has no such value
	huge := strings.Repeat("9", 40)
	for literal, want := range map[string][2]int64{ // times 1, times 10,000
		"0": {0, 0}, "-0": {0, 0}, "0.0": {0, 0}, "-0.000e-5": {0, 0}, "0e" + huge: {0, 0}, "0e-" + huge: {0, 0},
		"1": {1, 10_000}, "1.0": {1, 10_000}, "1e0": {1, 10_000}, "1E+0": {1, 10_000}, "1e-0": {1, 10_000}, "10e-1": {1, 10_000}, "0.1e1": {1, 10_000}, "0.01E+002": {1, 10_000},
		"-1":  {-1, -10_000},
		"1e3": {1000, 10_000_000},
		"1.5": {no, 15_000}, "-0.5": {no, -5000}, "15e-1": {no, 15_000},
		"0.0001": {no, 1}, "1e-4": {no, 1}, "0.00010": {no, 1}, "0.00001": {no, no}, "1e-5": {no, no}, "10e-5": {no, 1}, "1.00001": {no, no},
		"1e18":                     {1_000_000_000_000_000_000, no},
		"1e19":                     {no, no},
		"9223372036854775807":      {9223372036854775807, no},
		"9223372036854775807.0":    {9223372036854775807, no},
		"9223372036854775807.1":    {no, no},
		"922337203685477580.7e1":   {9223372036854775807, no},
		"9223372036854775808":      {no, no},
		"-9223372036854775808":     {-9223372036854775808, no},
		"-9223372036854775809":     {no, no},
		"922337203685477.5807":     {no, 9223372036854775807},
		"922337203685477.5808":     {no, no},
		"-922337203685477.5808":    {no, -9223372036854775808},
		"-922337203685477.58080":   {no, -9223372036854775808},
		"922337203685478":          {922337203685478, no},
		"10000000000000000000":     {no, no},
		"10000000000000000000e-19": {1, 10_000},
		"1e" + huge:                {no, no},
		"1e-" + huge:               {no, no},
		"1e9223372036854775807":    {no, no},
		"1e-9223372036854775808":   {no, no},
		"1e9223372036854775808":    {no, no},
		"1e4294967296":             {no, no}, // 2^32, which an int of 32 bits has no room for
		"-1e-4294967296":           {no, no},
		"18446744073709551617":     {no, no}, // 2^64 + 1, which wraps round to 1
		"1" + strings.Repeat("0", 100_000) + "e-100000":  {1, 10_000},
		"0." + strings.Repeat("0", 100_000) + "1e100001": {1, 10_000},
		"1." + strings.Repeat("0", 100_000):              {1, 10_000},
		"1." + strings.Repeat("0", 100_000) + "1":        {no, no},
	} {
		v := number(t, literal)
		for i, places := range []int{0, 4} {
			got, ok := v.Scaled(places)
			if ok != (want[i] != no) || ok && got != want[i] {
				t.Errorf("%.40s with %d places is %d, %v", literal, places, got, ok)
			}
		}
	}
}

func TestScaledOfOtherKinds(t *testing.T) {
	t.Parallel()
	for _, literal := range []string{"true", `"1"`, "[1]", `{"n":1}`} {
		if n, ok := number(t, literal).Scaled(0); ok || n != 0 {
			t.Errorf("%s is the number %d", literal, n)
		}
	}
}
