// Deltas and tag filters of ours, checked by Centrifugo's libraries: run.sh copies this file into the source of centrifuge, beside its
// filters, which other modules cannot import. CASES is the output of the example `feature_cases`.
package filter

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/centrifugal/protocol"
	fdelta "github.com/shadowspore/fossil-delta"
)

type featureCase struct {
	Base, Data, Delta string
	Filter            *protocol.FilterNode
	Tags              map[string]string
	// nil: the filter is rejected.
	Matches *bool
}

func decode(t *testing.T, text string) []byte {
	t.Helper()
	decoded, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

func TestFeaturesOfRingmain(t *testing.T) {
	file, err := os.Open(os.Getenv("CASES"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	deltas, matching, others, rejected := 0, 0, 0, 0
	for lines.Scan() {
		var one featureCase
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			t.Fatal(err)
		}
		if one.Filter == nil {
			deltas++
			data, err := fdelta.Apply(decode(t, one.Base), decode(t, one.Delta))
			if err != nil || !bytes.Equal(data, decode(t, one.Data)) {
				t.Errorf("the delta does not lead to the data: %v %s", err, lines.Text())
			}
			continue
		}
		if err := Validate(one.Filter); (err != nil) != (one.Matches == nil) {
			t.Errorf("valid: %v, in %s", err, lines.Text())
			continue
		}
		if one.Matches == nil {
			rejected++
			continue
		}
		matches, err := Match(one.Filter, one.Tags)
		if err != nil || matches != *one.Matches {
			t.Errorf("matches: %v %v, in %s", matches, err, lines.Text())
		}
		if matches {
			matching++
		} else {
			others++
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if deltas < 1000 || matching < 1000 || others < 1000 || rejected < 1000 {
		t.Fatalf("expected more cases: %d deltas, %d matching, %d others, %d rejected", deltas, matching, others, rejected)
	}
	t.Logf("%d deltas, %d matching, %d others, %d rejected", deltas, matching, others, rejected)
}
