package format

// The kinds and the events of the records that the service puts into the log, besides the log's own in format.go. The log gives
// them no meaning. They stand here so that the service, which writes them, and the packages that count or stream them use the
// same words.
const (
	// KindApproval is the kind of record of the steps of an approval request. Its
	// events are the steps of package approval.
	KindApproval = "approval"
	// KindCapability is the kind of record of the steps of a capability. Its events are the steps of package capability.
	KindCapability = "capability"

	EventStart                = "start"
	EventStop                 = "stop"
	EventBundleLoaded         = "bundle_loaded"
	EventBundleRefused        = "bundle_refused"
	EventConfiguration        = "configuration"
	EventConfigurationRefused = "configuration_refused"
	EventAPIKeys              = "api_keys"
	EventAPIKeyAdded          = "api_key_added"
	EventAPIKeyRevoked        = "api_key_revoked"
	EventAPIKeyRestored       = "api_key_restored"
	EventAPIKeyChanged        = "api_key_changed"
	EventSigningKey           = "signing_key"
	EventSigningKeyChanged    = "signing_key_changed"
	EventBackup               = "backup"    // a backup was asked for
	EventRestored             = "restored"  // the log begins, or goes on (nothing_came_after), after a backup was restored; its details name the approvals and capabilities that ended
	EventBegun                = "log_begun" // the log begins in the place of one that is damaged or gone; its details name the API keys that were revoked for it
	EventImported             = "imported"  // the state of the data directory is in etcd from now on
	// EventWithdrawn says that an allow was never answered, because its use was given back before it was settled.
	EventWithdrawn = "withdrawn"
	// EventToolDrift says that a gateway found a tool that differs from the operator's lock. Every caller that may ask for
	// decisions can have it recorded, so unlike other events it is refused if there is no room.
	EventToolDrift = "tool_drift"

	// ApprovalRequired is the type of obligation with which an allow is waiting.
	ApprovalRequired = "approval_required"
)
