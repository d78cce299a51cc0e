// Package clients has no Go in it. It is the place of the clients in other languages, and of the tests that hold them, and
// the client in Go ([policy-service/evaluation/authzenclient]), to one table of cases.
package clients
