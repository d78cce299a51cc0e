package doctor

import (
	"errors"

	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/server"
)

// cluster asks etcd whether it can be used, and changes nothing there.
func (x *exam) cluster() {
	const check = "cluster"
	c := x.Config.Cluster
	if c == nil {
		return
	}
	for _, err := range c.Files() {
		x.Wrong(check, err)
	}
	begun, err := cluster.Begun(x.ctx, *c)
	switch {
	case errors.Is(err, cluster.ErrAway):
		x.Bites(check, "start etcd, and see to the network, the certificates and the user of etcd", "%v", err)
		return
	case err != nil:
		x.Wrong(check, err)
		return
	case begun:
		x.OK(check, "etcd answers, and replicas have joined")
	default:
		x.OK(check, "etcd answers, and no replica has joined yet: the first start makes the keys that all have")
	}
	if x.joined = begun; !begun {
		return
	}
	for _, err := range server.MissingShared(x.data, c) {
		x.Wrong(check, err)
	}
	if !server.IsReplica(x.data) && len(server.MissingShared(x.data, &cluster.Config{})) == 0 { // to open it would make the missing keys
		if err := server.CheckNew(x.ctx, x.Config); err != nil {
			x.Wrong(check, err)
		} else {
			x.OK(check, "this is to be a new replica, beside others that run or are lost")
		}
	}
}
