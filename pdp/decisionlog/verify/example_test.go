package verify_test

import (
	"bytes"
	"fmt"
	"os"

	"policy-service/pdp/decisionlog/verify"
)

// logKey is the log's public key, which the auditor took when the log began.
const logKey = "policy-service/4e240d691b73d23f+6546d29d+AZ5Oz1cUx4V3YzNrbZvOfUNK9VSLVdV58+pB64nSB1Dg"

// The export was made by `policy-service log export --tenant default`.
func ExampleExport() {
	file, err := os.Open("testdata/example/export.ndjson")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = file.Close() }()
	report := verify.Export(file, verify.Options{Key: logKey})
	if !report.Verified() {
		fmt.Println(report.Code, report.Problem)
		return
	}
	fmt.Printf("%s: %d of %d records\n", report.Code, report.Records, report.Size)
	for _, proved := range report.Proved {
		fmt.Println("proved:", proved)
	}
	for _, open := range report.NotExcluded {
		fmt.Println("not excluded:", open)
	}
	// Output:
	// verified: 2 of 8 records
	// proved: each of the 2 records here is in the log, at its place among the 8 that the checkpoint covers
	// not excluded: records cut off the end, or the whole put back to an older copy: give a checkpoint that was kept elsewhere
	// not excluded: the log signed anew by whoever holds, or stole, its private key: give a checkpoint that was kept elsewhere
	// not excluded: of the 6 records that were left out nothing is known but their hashes: whether they are what the filter was to leave out, too
}

// The record and its proof were written by `policy-service log prove ID`. Somebody else then changes one byte of the
// record, so that it says that eric was denied.
func ExampleProof() {
	record, err := os.ReadFile("testdata/example/decision.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	proof, err := os.ReadFile("testdata/example/decision.json.tlog-proof")
	if err != nil {
		fmt.Println(err)
		return
	}
	forged := bytes.Replace(record, []byte("erin"), []byte("eric"), 1)
	for _, line := range [][]byte{record, forged} {
		report := verify.Proof(line, proof, verify.Options{Key: logKey})
		if !report.Verified() {
			fmt.Println(report.Code, report.Problem)
			continue
		}
		fmt.Println(report.Code, report.Proved)
	}
	// Output:
	// verified [each of the 1 records here is in the log, at its place among the 9 that the checkpoint covers]
	// altered record 7: the line is not in the log that the proof's checkpoint was signed for: invalid transparency proof
}
