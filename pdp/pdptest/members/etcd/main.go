// Etcd is the program etcd itself, with its own flags and variables, for tests of files that run it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
