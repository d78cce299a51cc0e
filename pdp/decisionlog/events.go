package decisionlog

// The kind and the events of the records that the service puts into the log, besides the
// log's own in format.go and removalformat.go. The log gives them no meaning. They stand
// here so that the service, which writes them, and whoever counts or streams them use the
// same words.
const (
	// KindApproval is the kind of record that says what became of an approval request. Its
	// events are the steps of package approval.
	KindApproval = "approval"

	EventStart                = "start"
	EventStop                 = "stop"
	EventBundleLoaded         = "bundle_loaded"
	EventBundleRefused        = "bundle_refused"
	EventConfiguration        = "configuration"
	EventConfigurationRefused = "configuration_refused"
	EventAPIKeys              = "api_keys"
	EventAPIKeyAdded          = "api_key_added"
	EventAPIKeyRevoked        = "api_key_revoked"
	EventSigningKey           = "signing_key"
	EventSigningKeyChanged    = "signing_key_changed"
	// EventApprovalsUpgraded says that a file of approvals of format 1 counts no more.
	EventApprovalsUpgraded = "approvals_upgraded"
)
