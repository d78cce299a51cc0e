package clients_test

import "testing"

func TestY1(t *testing.T) { table(t, run(t, "python", python(t), "tests/driver.py")) }
func TestY1Async(t *testing.T) { table(t, run(t, "python", python(t), "tests/driver.py", "--async")) }
