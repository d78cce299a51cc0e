package console

import "net/http"

// The headers of every answer. A page loads from the console alone, runs no script but its file, is in no frame, and
// sends nothing elsewhere.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Frame-Options":              "DENY",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	// A browser passes over a value without names as one that it cannot read.
	"Permissions-Policy": "camera=(), display-capture=(), geolocation=(), hid=(), microphone=(), midi=(), payment=(), " +
		"serial=(), usb=()",
	"Cache-Control": "no-store",
}

func setHeaders(h http.Header) {
	for name, value := range headers {
		h.Set(name, value)
	}
}
