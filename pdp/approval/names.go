package approval

// Statuses are all states there are.
func Statuses() []Status {
	return []Status{Pending, Approved, Denied, Expired, Cancelled, UsedUp, Revoked}
}

// StepNames are the names of all steps there are.
func StepNames() []string {
	return []string{
		StepFiled, StepApprove, StepDeny, StepDelegate, StepApproved, StepDenied, StepCancelled, StepRevoked, StepExpired,
		StepUsed, StepUsedUp, StepReleased, StepLapsed, StepReopened, StepCaughtUp,
	}
}
