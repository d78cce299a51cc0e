#!/bin/sh
# sh certificates.sh DIR [NAME...]
#
# Makes certificates for the cluster of compose/cluster.yaml and kubernetes-cluster, for a trial or a network of your own:
# an authority for etcd alone, so that no other certificate opens etcd, and one for everything else. Each directory below
# DIR is for one kind of program, with ca.crt, tls.crt and tls.key, as a Secret of Kubernetes has them. NAME is a name by
# which clients reach the balancer, besides localhost. Needs OpenSSL 3. The keys of the authorities stay in DIR/*.key:
# move them to where no program of the cluster can read them.
set -eu
umask 077
dir=$1
shift
mkdir -p "$dir"
cd "$dir"

make() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "$@" 2>openssl.log || { cat openssl.log >&2; exit 1; }; }

authority() { # NAME
	make -days 3650 -subj "/CN=authority of $1" -addext keyUsage=critical,keyCertSign,cRLSign -keyout "$1.key" -out "$1.crt"
}

certificate() { # AUTHORITY PROGRAM NAME...
	authority=$1 program=$2 names=IP:127.0.0.1,DNS:localhost
	shift 2
	for name; do names=$names,DNS:$name; done
	mkdir -p "$program"
	cp "$authority.crt" "$program/ca.crt"
	make -CA "$authority.crt" -CAkey "$authority.key" -days 365 -subj "/CN=$program" -addext "subjectAltName=$names" \
		-addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=serverAuth,clientAuth -keyout "$program/tls.key" -out "$program/tls.crt"
}

authority etcd-authority
certificate etcd-authority etcd etcd-0 etcd-1 etcd-2 etcd-0.etcd etcd-1.etcd etcd-2.etcd
certificate etcd-authority etcd-client pdp
authority authority
certificate authority pdp pdp policy-service.default.svc
certificate authority gateway gateway mcp-gateway.default.svc
certificate authority balancer balancer "$@"
rm openssl.log
