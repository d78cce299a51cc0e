// Package server makes no promise: it is for the tests of this module alone. It gives those outside of pdp what they use of
// pdp/internal/server.
package server

import "policy-service/pdp/internal/server"

type (
	Config          = server.Config
	Program         = server.Program
	WitnessesConfig = server.WitnessesConfig
)

var (
	ConfigForm     = server.ConfigForm
	New            = server.New
	OpenSharedKeys = server.OpenSharedKeys
)
