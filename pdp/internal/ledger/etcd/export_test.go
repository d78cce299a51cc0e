package etcd

// NewHistory begins with what was known before.
func NewHistory(cluster uint64, revision int64) *History {
	return &History{cluster: cluster, revision: revision}
}
