// Command policy-service decides about requests for access, by Cedar policies in a directory.
package main

import (
	"os"

	"policy-service/pdp/command"
)

func main() {
	os.Exit(command.Main(os.Args[1:]...))
}
