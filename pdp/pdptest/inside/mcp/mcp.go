// Package mcp makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/mcp.
package mcp

import "policy-service/pdp/internal/mcp"

type Config = mcp.Config

const KeepAtPDP = mcp.KeepAtPDP

var Form = mcp.Form
