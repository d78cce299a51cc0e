package console

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"
)

// Every form that changes something has two fields besides its own: version, of the approval request that the page
// showed (0 if there is none), and token. A form that approves has shown, too: the digest of the question and its terms if
// the page showed all of them whole, and otherwise nothing. The token is
//
//	base64url(HMAC-SHA256(key of the session, field(method) field(path) field(id) field(version) field(shown)))
//
// where a field is its length as 8 bytes, most significant first, and its text; the path is that below /console, the
// id that of the approval request or "", the version in decimal. So a token is good for one form of one page of one
// session.
const (
	tokenField   = "token"
	versionField = "version"
	shownField   = "shown"
	mostOfForm   = 64 << 10
)

// token is for a form that this page sends to a path of the console.
func (v *visit) token(method, path, id string, version int, shown string) string {
	return sumOf(hmac.New(sha256.New, v.key), method, path, id, strconv.Itoa(version), shown)
}

// sumOf is the sum of some fields, in base64url.
func sumOf(h hash.Hash, fields ...string) string {
	for _, field := range fields {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
		h.Write([]byte(field))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// sameOrigin reports if a browser says that a page of ours sent the request. A request that does not say so is
// refused: SameSite lets another port of the same host send the cookie.
func sameOrigin(r *http.Request) bool {
	site := r.Header["Sec-Fetch-Site"]
	return len(site) == 1 && site[0] == "same-origin"
}

// navigates reports if the browser goes to what it asks for, as far as it says. A script or a frame of another page of the
// same host would read a page of ours, with the tokens of its forms.
func navigates(r *http.Request) bool {
	says := func(name, what string) bool {
		sent := r.Header[name]
		return len(sent) == 0 || len(sent) == 1 && sent[0] == what
	}
	return says("Sec-Fetch-Dest", "document") && says("Sec-Fetch-Mode", "navigate")
}

// fetches reports if a browser says that a script of a page of ours asks. A request that does not say so is refused.
func fetches(r *http.Request) bool {
	dest := r.Header["Sec-Fetch-Dest"]
	return sameOrigin(r) && len(dest) == 1 && dest[0] == "empty"
}

// readForm reads the form that was sent. If it is none of this person's own pages, readForm answers, and returns false.
func (v *visit) readForm() bool {
	form, status := readForm(v.w, v.r)
	if status != http.StatusOK {
		v.problem(status)
		return false
	}
	version, err := strconv.Atoi(cmp.Or(form.Get(versionField), "0"))
	want := v.token(v.r.Method, below(v.r), v.r.PathValue("id"), version, form.Get(shownField))
	if err != nil || !hmac.Equal([]byte(form.Get(tokenField)), []byte(want)) {
		v.problem(http.StatusForbidden)
		return false
	}
	v.form, v.version = form, version
	return true
}

// readForm reads a form from the body alone. Each field is there once. Its status is OK or says why there is no form.
func readForm(w http.ResponseWriter, r *http.Request) (form url.Values, status int) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" {
		return nil, http.StatusUnsupportedMediaType
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostOfForm))
	if err != nil {
		return nil, http.StatusRequestEntityTooLarge
	}
	form, err = url.ParseQuery(string(body))
	if err != nil {
		return nil, http.StatusBadRequest
	}
	for name, values := range form {
		if len(values) != 1 || !utf8.ValidString(name) || !utf8.ValidString(values[0]) {
			return nil, http.StatusBadRequest
		}
	}
	return form, http.StatusOK
}
