package approval

// change is one transaction, of one approval at most: what is written, and what memory
// will have of it.
type change struct {
	tx       values
	size     uint64 // of the log: what goes on record of this change stands there or behind it
	pending  map[pendingOne]bool
	reserved map[string]bool
	live     map[string]bool
	outbox   []*entry
	silent   bool        // nobody is to be told
	saved    []*Approval // which approvals, in their new state
}

// save writes an approval, and every index that has it. Old is nil of a new one.
func (c *change) save(old *Approval, a *Approval) error {
	id := []byte(a.ID)
	a.After = c.size
	do := writes{c: c}
	do.put(bucketApprovals, id, a)
	if old != nil && old.open() {
		do.remove(bucketDue, timeKey(old.ExpiresAt, a.ID))
	}
	if a.open() {
		do.put(bucketDigests, a.Digest[:], a.ID)
		do.put(bucketDue, timeKey(a.ExpiresAt, a.ID), true)
	} else {
		do.put(bucketEnded, timeKey(a.EndedAt, a.ID), true)
	}
	if old != nil && old.open() && !a.open() {
		do.remove(bucketDigests, a.Digest[:])
	}
	c.live = map[string]bool{a.ID: a.open()}
	c.reserved = map[string]bool{a.ID: len(a.Reserved) > 0}
	if c.reserved[a.ID] {
		do.put(bucketReserved, id, true)
	} else {
		do.remove(bucketReserved, id)
	}
	c.wait(&do, old, a)
	c.saved = append(c.saved, a)
	return do.err
}

// wait keeps the index of those that are pending, and says who is to be told.
func (c *change) wait(do *writes, old *Approval, a *Approval) {
	was, is := old != nil && old.Status == Pending, a.Status == Pending
	switch {
	case is && !was:
		do.put(bucketPending, []byte(a.ID), waiting{a.Tenant, a.Subject, a.ExpiresAt})
		c.pending = map[pendingOne]bool{{a.ID, a.owner(), a.Caller}: true}
		do.tell(a.ID, Filed)
	case was && !is:
		do.remove(bucketPending, []byte(a.ID))
		c.pending = map[pendingOne]bool{{a.ID, a.owner(), a.Caller}: false}
		do.tell(a.ID, Completed)
	}
}

// forget removes a final approval.
func (c *change) forget(a *Approval) error {
	do := writes{c: c}
	do.remove(bucketApprovals, []byte(a.ID))
	do.remove(bucketEnded, timeKey(a.EndedAt, a.ID))
	do.remove(bucketUntold, []byte(a.ID))
	return do.err
}

// step puts a step into the outbox.
func (c *change) step(s *Step) error {
	number, err := c.tx.Bucket([]byte(bucketOutbox)).NextSequence()
	if err != nil {
		return err
	}
	c.outbox = append(c.outbox, &entry{number: number, approval: s.Approval.ID, tenant: s.Approval.Tenant, id: s.ID, name: s.Name, step: s})
	return put(c.tx, bucketOutbox, numberKey(number), s)
}

// writes are some, of which the first error counts.
type writes struct {
	c   *change
	err error
}

func (s *writes) put(bucket string, key []byte, v any) {
	if s.err == nil {
		s.err = put(s.c.tx, bucket, key, v)
	}
}

func (s *writes) remove(bucket string, key []byte) {
	if s.err == nil {
		s.err = remove(s.c.tx, bucket, key)
	}
}

func (s *writes) tell(id string, e Event) {
	if s.c.silent {
		return
	}
	var events []Event
	if s.err == nil {
		_, s.err = get(s.c.tx, bucketUntold, []byte(id), &events)
	}
	s.put(bucketUntold, []byte(id), append(events, e))
}
