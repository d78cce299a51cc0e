package index

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"
)

func TestReadList(t *testing.T) {
	stored := func(differences ...uint64) (b []byte) {
		for _, d := range differences {
			b = binary.AppendUvarint(b, d)
		}
		return b
	}
	if list, err := readList(stored(0, 5, 4), 10); err != nil || !slices.Equal(list, []uint32{0, 5, 9}) {
		t.Error(list, err)
	}
	for name, b := range map[string][]byte{
		"beyond the limit": stored(10),
		"its sum beyond":   stored(5, 5),
		"an overflow":      stored(5, math.MaxUint64-3),
		"cut short":        {0x80},
	} {
		if list, err := readList(b, 10); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
}
