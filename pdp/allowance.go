package pdp

import (
	"bytes"
	"crypto/sha256"
	"time"

	"policy-service/pdp/internal/bundle"
)

// An allowance bounds what each tenant's own edits bring: what comes into force is kept for
// good, and each load is a record, so who edits without end would fill the disk for all.
// Bytes that are new count, and each edit as much as its records and lists at least. A
// tenant that has spent its allowance waits with its later edits; the last one counts.
type allowance struct {
	least  int64 // bytes, of one edit
	most   int64 // bytes at once
	second int64 // bytes, in the long run
	// good is when what a tenant spent is made good.
	good map[string]time.Time
	// paid is what a tenant spent for last, as long as that is not in force.
	paid map[string]paid
}

// paid is what was counted: what a tenant's files were, and whether they were kept.
type paid struct {
	part bundle.Part
	kept bool
}

// A thousand small edits at once, or sixteen of all that a tenant may bring; in the long
// run one every two seconds, or three gigabytes a day.
func newAllowance() allowance {
	return allowance{least: 64 << 10, most: 64 << 20, second: 32 << 10, good: map[string]time.Time{}, paid: map[string]paid{}}
}

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

// charge counts what a reading brings that is neither in force nor was counted before.
// Where it is kept, so is a list of all files of all owners, of which each tenant that
// edited something has a share.
func (a *allowance) charge(files *Files, read bundle.Reading, kept bool, before *loaded, now time.Time) {
	brought := map[string]int64{}
	for name, text := range files.Content {
		if owner := files.Owner(name); owner != "" && !bytes.Equal(text, before.Files.Content[name]) {
			brought[owner] += int64(len(text))
		}
	}
	var payers []string
	for _, tenant := range read.Others(before.read) {
		if was, is := a.paid[tenant], read.Tenants[tenant]; !is.Equal(was.part) {
			payers = append(payers, tenant)
		} else if kept && !was.kept {
			delete(brought, tenant) // only the list is new
			payers = append(payers, tenant)
		}
		a.paid[tenant] = paid{read.Tenants[tenant], kept}
	}
	for _, tenant := range payers {
		size := brought[tenant]
		if kept {
			size += listSize(files) / int64(len(payers))
		}
		a.spend(tenant, size, now)
	}
}

// forget drops what is of no use any more: of tenants that are gone, that have made good
// what they spent, and whose files, as they lie there, are those in force.
func (a *allowance) forget(read, inForce bundle.Reading, now time.Time) {
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

// isKept reports whether a tenant's files were kept as they are, so that to load them again
// brings nothing.
func (a *allowance) isKept(tenant string, is bundle.Part) bool {
	was, ever := a.paid[tenant]
	return ever && was.kept && was.part.Equal(is)
}

// listSize is what the list of a bundle's files takes that is kept with them.
func listSize(files *Files) (size int64) {
	const line = 2*sha256.Size + len("  \n")
	for name := range files.Content {
		size += int64(line + len(name))
	}
	return size
}
