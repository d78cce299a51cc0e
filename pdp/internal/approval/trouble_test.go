package approval_test

import (
	"os"
	"os/exec"
	"testing"

	"policy-service/pdp/pdptest/night"
)

// inTrouble is the name of a variable. Where it is set all stores have an engine that refuses one of three changes as if
// another process had made one before.
const inTrouble = "APPROVALS_IN_TROUBLE"

// onEtcd is as inTrouble: all stores are in etcd.
const onEtcd = "APPROVALS_ON_ETCD"

// unchanged are tests that make their own store or engine: a variable changes nothing of them.
const unchanged = "TestActors|TestCrash|TestCrashInEveryStateOfARound|TestPreviousIsTheNewestBefore|TestRateOfMany|" +
	"TestALongReaderFindsWhatIsOnRecord|TestCommits|TestToolRequestPutBack"

// TestInTrouble runs the other tests where changes are made again, but those of several processes, whose changes are anyway, and
// those of rates: what they take is not given back where another process takes the last place in between.
func TestInTrouble(t *testing.T) {
	t.Parallel()
	again(t, inTrouble, unchanged+"|TestInTrouble|TestOnEtcd|TestReplicas.*|TestToolRequestsAreBounded|TestTheRatesAreForWhatIsFiled|TestTake.*|"+
		"TestEverNewSubjectsOfOneCallerLeaveOthersTheirRate|TestOneUseWhereverItIsAsked|TestReservedElsewhereIsLeftAlone|TestUnrecordedElsewhereDoesNotCount|"+
		"TestOneDoesItForAll|TestNewsOfAnother|TestAForgottenTaskTakesNothingOfItsSuccessor|TestALogThatWasCut|TestOneMoreUseNeedsVotesThatCountHere|"+
		"TestEachChangeOnceOrRefused|TestALongRecordCountsAtItsOriginAlone|TestSettleLost|TestWorkSettlesLost")
}

// TestOnEtcd runs the other tests in etcd, but those that do something to the file, that run in a bubble of synctest, or that
// are about a thousand subjects.
func TestOnEtcd(t *testing.T) {
	t.Parallel()
	night.Other(t, "etcd")
	again(t, onEtcd, unchanged+"|TestInTrouble|TestOnEtcd|TestReplicas.*|TestToolRequestsAreBounded|TestTake.*|TestLocked|TestDisk.*|TestLostWrites|TestDamage.*|TestFlippedValue|TestFormatRefused|"+
		"TestReserved(Round|Use)IsNotGivenBack|TestCopyOfAReservationCountsOnce|TestRoundsBeforeAKnownOneAreTaken|TestNothingGoesOnFromWhatIsAskedAgain|"+
		"TestUnlisted.*|TestNoRoundWithoutRounds|TestFollowNeedsItsFile|TestWhatAnOlderCopyCatchesUpIsNew|TestOlderCopy.*|TestShorterLogKeepsStoreClosed|"+
		"TestManyUsesAtOnceAreSettledAtAStart|TestLargeApprovalsDoNotKeepAStartUp|TestLookReadsTheOutbox|TestStepsStayInOrderOverAStart|TestWay.*|"+
		"TestRun|TestEverNewSubjectsOfOneCallerLeaveOthersTheirRate|TestPropertyFollowers")
}

// again runs this program with a variable, but without some tests.
func again(t *testing.T, variable, but string) {
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.short", "-test.timeout=30m", "-test.skip=^("+but+")$")
	again.Env = append(os.Environ(), variable+"=1")
	if said, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}
