package main

import "syscall"

// endWithParent ends a server whose parent was killed before it could.
func endWithParent(of *syscall.SysProcAttr) { of.Pdeathsig = syscall.SIGQUIT }
