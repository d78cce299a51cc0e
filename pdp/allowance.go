package pdp

import (
	"bytes"
	"time"
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
}

// A thousand small edits at once, or sixteen of all that a tenant may bring; in the long
// run one every two seconds, or three gigabytes a day.
func newAllowance() allowance {
	return allowance{least: 64 << 10, most: 64 << 20, second: 32 << 10, good: map[string]time.Time{}}
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

// charge counts what a reading brings that is neither in force nor was acted on before.
func (a *allowance) charge(files *Files, read, seen reading, before *loaded, now time.Time) {
	for tenant := range a.good {
		if _, there := read.tenants[tenant]; !there || a.good[tenant].Before(now) {
			delete(a.good, tenant)
		}
	}
	brought := map[string]int64{}
	for name, text := range files.content {
		if owner := files.owner(name); owner != "" && !bytes.Equal(text, before.files.content[name]) {
			brought[owner] += int64(len(text))
		}
	}
	for _, tenant := range read.others(before.read) {
		if read.tenants[tenant].equal(seen.tenants[tenant]) {
			continue
		}
		a.spend(tenant, brought[tenant], now)
	}
}
