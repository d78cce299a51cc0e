// Package seal makes values that clients keep for a gateway and cannot read, change, or use for anything but what they were
// made for: session ids, states of requests, ids of requests that go to a client.
package seal
