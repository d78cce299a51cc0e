package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"policy-service/pdp/internal/plainfile"
)

const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

const (
	minSecret  = 32
	maxSecret  = 4 << 10
	minForeign = 24 // the shortest secret that the specification permits
)

// isID reports if an id is valid. A full stop is not: with it, two messages could share one signature.
var isID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`).MatchString

// sign makes one signature, as it stands in the header.
func sign(secret []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = io.WriteString(mac, id+"."+timestamp+".")
	_, _ = mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Verify checks that a request is from a sender with the same secret. h and body are those of the request, body byte
// for byte as it came. A request that was signed more than tolerance before now, or after now, is refused; five minutes
// are usual. A receiver that keeps each accepted Webhook-Id for twice that time also recognises repetitions.
//
// Believe nothing in h or body before Verify returned nil.
func Verify(secret []byte, h http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	if len(secret) < minForeign {
		return fmt.Errorf("webhook: the secret has less than %d bytes; give the one that the sender has", minForeign)
	}
	id, timestamp, signatures := only(h, headerID), only(h, headerTimestamp), only(h, headerSignature)
	if !isID(id) {
		return errors.New("webhook: the header Webhook-Id is missing, or is none")
	}
	seconds, err := strconv.ParseUint(timestamp, 10, 40) // for a time that does not overflow
	if err != nil {
		return errors.New("webhook: the header Webhook-Timestamp is missing, or is none")
	}
	if at := time.Unix(int64(seconds), 0); at.Before(now.Add(-tolerance)) || at.After(now.Add(tolerance)) {
		return errors.New("webhook: it was signed too long ago, or the clocks differ")
	}
	want := []byte(sign(secret, id, timestamp, body))
	for one := range strings.SplitSeq(signatures, " ") {
		if hmac.Equal([]byte(one), want) {
			return nil
		}
	}
	return errors.New("webhook: no signature is that of the secret for this request")
}

// only is the value of a header that is there once. If there are two, another program may read the other one.
func only(h http.Header, name string) string {
	if values := h.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}

// readSecret reads the key of the signatures. No error quotes the key.
func readSecret(file string) ([]byte, error) {
	if file == "" {
		return nil, errors.New("it is missing; make one with: openssl rand -hex 32")
	}
	content, err := plainfile.Read(file, maxSecret)
	secret := bytes.TrimSuffix(content, []byte("\n"))
	switch {
	case err != nil:
		return nil, err
	case len(secret) < minSecret:
		return nil, fmt.Errorf("%s has less than %d bytes; make one with: openssl rand -hex 32", file, minSecret)
	case bytes.HasPrefix(secret, []byte("whsec_")):
		return nil, fmt.Errorf("%s holds a secret in the form whsec_…; write what the base64 behind that stands for", file)
	}
	return secret, nil
}
