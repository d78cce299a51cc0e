package pdp

import (
	"bytes"
	"crypto/sha256"
	"time"

	"policy-service/pdp/internal/source"
)

// An allowance bounds the bytes that each tenant's own edits add to the disk. Every bundle that
// comes into force is kept for good, and every load is a record. Without a bound, a tenant that
// edits without end would fill the disk for all. New bytes count, and each edit counts at least
// as much as its records and lists take. If a tenant has spent its allowance, its later edits
// wait, and only the last of them is loaded.
type allowance struct {
	least  int64 // bytes that one edit counts at least
	most   int64 // bytes that a tenant may spend at once
	second int64 // bytes that a tenant may spend each second in the long run
	// good is, for each tenant, the time at which all that it spent is made good.
	good map[string]time.Time
	// paid is the last edit that each tenant paid for, as long as it is not in force.
	paid map[string]paid
}

// paid is an edit that was counted: what the tenant's files were, and whether they were kept.
type paid struct {
	part source.Part
	kept bool
}

// newAllowance allows a thousand small edits at once, or sixteen edits of the greatest size that a
// tenant may have. In the long run it allows one small edit every two seconds, or three
// gigabytes a day.
func newAllowance() allowance {
	return allowance{
		least:  64 << 10,
		most:   64 << 20,
		second: 32 << 10,
		good:   map[string]time.Time{},
		paid:   map[string]paid{},
	}
}

// spent reports whether a tenant has spent its allowance.
func (a *allowance) spent(tenant string, now time.Time) bool {
	return a.good[tenant].Sub(now) >= time.Duration(a.most)*time.Second/time.Duration(a.second)
}

// spend counts an edit of a tenant.
func (a *allowance) spend(tenant string, size int64, now time.Time) {
	from := a.good[tenant]
	if from.Before(now) {
		from = now
	}
	a.good[tenant] = from.Add(time.Duration(max(size, a.least)) * time.Second / time.Duration(a.second))
}

// charge counts the bytes of a reading that are not in force and were not counted before. If an edit is kept, a list of all files
// of all owners is kept with it, and the tenants that edited something share the size of the list.
func (a *allowance) charge(files *Files, read, kept source.Reading, before *loaded, now time.Time) {
	brought := map[string]int64{}
	for name, text := range files.Content {
		if owner := files.Owner(name); owner != "" && !bytes.Equal(text, before.Files.Content[name]) {
			brought[owner] += int64(len(text))
		}
	}
	var payers []string
	for _, tenant := range read.Others(before.read) {
		is := paid{read.Tenants[tenant], read.Tenants[tenant].Equal(kept.Tenants[tenant])}
		if was := a.paid[tenant]; !is.part.Equal(was.part) {
			payers = append(payers, tenant)
		} else if is.kept && !was.kept {
			delete(brought, tenant) // only the list is new
			payers = append(payers, tenant)
		}
		a.paid[tenant] = is
	}
	for _, tenant := range payers {
		size := brought[tenant]
		if a.paid[tenant].kept {
			size += listSize(files) / int64(len(payers))
		}
		a.spend(tenant, size, now)
	}
}

// forget drops the entries that are of no use any more: those of tenants that are gone, that have
// made good what they spent, or whose files on disk are the files in force.
func (a *allowance) forget(read, inForce source.Reading, now time.Time) {
	for tenant, good := range a.good {
		if _, there := read.Tenants[tenant]; !there || good.Before(now) {
			delete(a.good, tenant)
		}
	}
	for tenant := range a.paid {
		if is, there := read.Tenants[tenant]; !there || is.Equal(inForce.Tenants[tenant]) {
			delete(a.paid, tenant)
		}
	}
}

// isKept reports whether a tenant's files were kept exactly as they are. To load such files again
// adds nothing to the disk.
func (a *allowance) isKept(tenant string, is source.Part) bool {
	was, ever := a.paid[tenant]
	return ever && was.kept && was.part.Equal(is)
}

// listSize returns the size of the list of files that is kept with a bundle.
func listSize(files *Files) (size int64) {
	const line = 2*sha256.Size + len("  \n")
	for name := range files.Content {
		size += int64(line + len(name))
	}
	return size
}
