package webhook_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/approval/webhook"
)

// reference signs as the specification says, in words of its own.
func reference(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(bytes.Join([][]byte{[]byte(id), []byte(timestamp), body}, []byte(".")))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func headers(id, timestamp, signature string) http.Header {
	return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {signature}}
}

// TestVector is the example that the libraries of Standard Webhooks are tested with.
func TestVector(t *testing.T) {
	t.Parallel()
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	h := headers("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	if err := webhook.Verify(key, h, []byte(`{"test": 2432232314}`), time.Unix(1614265330, 0), time.Minute); err != nil {
		t.Error(err)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	const id, at = "msg_1", 1772366400
	timestamp := strconv.Itoa(at)
	good := reference([]byte(secret), id, timestamp, []byte(body))
	other := reference(bytes.Repeat([]byte("x"), 32), id, timestamp, []byte(body))
	long := "1" + strings.Repeat("0", 18)
	for name, test := range map[string]struct {
		h    http.Header
		body string
		now  int64
		want string // "" is accepted
	}{
		"as signed":           {headers(id, timestamp, good), body, at, ""},
		"one of several":      {headers(id, timestamp, other+" v1a,xyz "+good), body, at, ""},
		"at the end":          {headers(id, timestamp, good), body, at + 300, ""},
		"clock behind":        {headers(id, timestamp, good), body, at - 300, ""},
		"too old":             {headers(id, timestamp, good), body, at + 301, "too long ago"},
		"from the future":     {headers(id, timestamp, good), body, at - 301, "too long ago"},
		"other body":          {headers(id, timestamp, good), body + " ", at, "no signature"},
		"other id":            {headers("msg_2", timestamp, good), body, at, "no signature"},
		"other timestamp":     {headers(id, strconv.Itoa(at+1), good), body, at, "no signature"},
		"other secret":        {headers(id, timestamp, other), body, at, "no signature"},
		"another version":     {headers(id, timestamp, "v2"+good[2:]), body, at, "no signature"},
		"separated by commas": {headers(id, timestamp, other+","+good), body, at, "no signature"},
		"no signature":        {headers(id, timestamp, ""), body, at, "no signature"},
		"no header":           {http.Header{}, body, at, "Webhook-Id"},
		"no timestamp":        {headers(id, "", good), body, at, "Webhook-Timestamp"},
		"a sign":              {headers(id, "+"+timestamp, reference([]byte(secret), id, "+"+timestamp, []byte(body))), body, at, "Webhook-Timestamp"},
		"a fraction":          {headers(id, timestamp+".0", reference([]byte(secret), id, timestamp+".0", []byte(body))), body, at, "Webhook-Timestamp"},
		"beyond all time":     {headers(id, long, reference([]byte(secret), id, long, []byte(body))), body, at, "Webhook-Timestamp"},
		// The id, the timestamp and the body of one message, cut elsewhere.
		"cut elsewhere": {headers(id+"."+timestamp, timestamp, reference([]byte(secret), id, timestamp, []byte(timestamp+"."+body))), body, at, "Webhook-Id"},
		"two ids":       {http.Header{"Webhook-Id": {id, "msg_2"}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {good}}, body, at, "Webhook-Id"},
	} {
		err := webhook.Verify([]byte(secret), test.h, []byte(test.body), time.Unix(test.now, 0), 5*time.Minute)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	empty := headers(id, timestamp, reference(nil, id, timestamp, []byte(body)))
	if err := webhook.Verify(nil, empty, []byte(body), time.Unix(at, 0), time.Minute); err == nil {
		t.Error("nobody needs a secret to know the empty one")
	}
	if err := webhook.Verify([]byte(secret), headers(id, timestamp, good), []byte(body), time.Unix(at, 0), -time.Second); err == nil {
		t.Error("a tolerance below zero accepts something")
	}
}

// FuzzVerify holds that what is accepted was signed with the secret, in time, and that what was is accepted.
func FuzzVerify(f *testing.F) {
	const at = 1772366400
	key, now := []byte(secret), time.Unix(at, 0)
	f.Add("msg_1", "1772366400", "v1,", []byte(body))
	f.Add("a.1", "1772366101", "v1, v1,", []byte(nil))
	f.Add("", "9223372036854775807", " ", []byte("."))
	f.Add("msg_1\n", "-1", "v1a,x", []byte("{}"))
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		right := reference(key, id, timestamp, body)
		if webhook.Verify(key, headers(id, timestamp, signature), body, now, time.Minute) == nil && !strings.Contains(signature, right) {
			t.Fatalf("accepts %q without the secret", signature)
		}
		seconds, err := strconv.ParseInt(timestamp, 10, 64)
		inTime := err == nil && seconds >= at-60 && seconds <= at+60
		plain := id != "" && len(id) <= 128 && strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
		accepted := webhook.Verify(key, headers(id, timestamp, signature+" "+right), body, now, time.Minute) == nil
		if accepted && !inTime {
			t.Fatalf("accepts the timestamp %q", timestamp)
		}
		if !accepted && inTime && plain && timestamp == strconv.FormatInt(seconds, 10) {
			t.Fatalf("refuses what was signed: %q %q", id, timestamp)
		}
	})
}

func TestSecretFile(t *testing.T) {
	t.Parallel()
	o, _, _ := options(t)
	create := func(file string) error {
		_, err := webhook.New([]webhook.Config{{URL: "https://chat.example.com", SecretFile: file}}, o)
		return err
	}
	for name, content := range map[string]string{
		"empty":                  "",
		"short":                  secret[1:],
		"short with a newline":   secret[1:] + "\n",
		"long":                   strings.Repeat(secret, 200),
		"in the form of another": "whsec_" + secret + secret,
	} {
		file := secretFile(t, content)
		if err := create(file); err == nil || !strings.Contains(err.Error(), "webhooks[0]: secret_file: "+file) || strings.Contains(err.Error(), secret[1:]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, content := range map[string]string{"exact": secret, "with a newline": secret + "\n", "with two": secret[1:] + "\n\n"} {
		if err := create(secretFile(t, content)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for want, file := range map[string]string{"it is missing": "", "no such file": t.TempDir() + "/none", "not a regular file": t.TempDir()} {
		if err := create(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", file, err)
		}
	}
}
