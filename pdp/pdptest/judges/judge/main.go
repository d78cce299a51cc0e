// Command judge holds a decision log to programs of others: torchwood and Tessera. It has no code of ours but what joins
// them, and ends with 1 and a line where they refuse, and with 2 where they come to no end.
//
//	judge policy POLICY               torchwood reads the policy
//	judge checkpoint POLICY FILE      torchwood accepts the checkpoint by the policy
//	judge proof POLICY PROOF LINE     torchwood accepts the proof of the record that the file LINE has
//	judge tiles URL VKEY              torchwood authenticates every tile that the checkpoint requires
//	judge consistency URL VKEY OLD    Tessera proves from tiles that the log goes on from a checkpoint
//	judge proofs URL VKEY LINES       Tessera proves from tiles that each line is in the log
//	judge fsck URL VKEY LINES         Tessera makes all tiles of the lines, and compares
//
// URL is the prefix of the log: it ends before /checkpoint. LINES has a line for each record, and an empty line where the
// content is gone: its hash is then taken from its tile, and its index is printed.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/torchwood"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"k8s.io/klog/v2"
)

var (
	header     = flag.String("header", "", "a `header` of each request: NAME: VALUE")
	every      = flag.Uint64("every", 1, "proofs looks at each `n`th line from the last one back: each takes Tessera half a millisecond")
	checkpoint = flag.String("checkpoint", "", "the `file` of a checkpoint that is taken for the newest one")
)

func main() {
	klog.LogToStderr(false)
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	time.AfterFunc(2*time.Minute+time.Second, func() {
		fmt.Fprintln(os.Stderr, "judge: no end in two minutes")
		os.Exit(2)
	})
	said, err := judge(ctx, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
	fmt.Println(said)
}

func judge(ctx context.Context, args []string) (said string, err error) {
	judges := map[string]struct {
		operands int
		judge    func(context.Context, []string) (string, error)
	}{
		"policy":      {1, policy},
		"checkpoint":  {2, checkpointByPolicy},
		"proof":       {3, proofByPolicy},
		"tiles":       {2, tiles},
		"consistency": {3, consistency},
		"proofs":      {3, proofs},
		"fsck":        {3, check},
	}
	if len(args) == 0 || len(args[1:]) != judges[args[0]].operands || judges[args[0]].judge == nil {
		return "", fmt.Errorf("the arguments %q are those of no judge", args)
	}
	return judges[args[0]].judge(ctx, args[1:])
}

func policy(_ context.Context, args []string) (string, error) {
	_, _, err := read(args[0], args[0])
	return "a policy", err
}

// read reads a policy and another file.
func read(policy, file string) (torchwood.Policy, []byte, error) {
	text, err := os.ReadFile(policy)
	if err != nil {
		return nil, nil, err
	}
	p, err := torchwood.ParsePolicy(text)
	if err != nil {
		return nil, nil, err
	}
	content, err := os.ReadFile(file)
	return p, content, err
}

func checkpointByPolicy(_ context.Context, args []string) (string, error) {
	p, signed, err := read(args[0], args[1])
	if err != nil {
		return "", err
	}
	c, n, err := torchwood.VerifyCheckpoint(signed, p)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("a checkpoint of %d records with %d signatures that count", c.N, len(n.Sigs)), nil
}

func proofByPolicy(_ context.Context, args []string) (string, error) {
	p, text, err := read(args[0], args[1])
	if err != nil {
		return "", err
	}
	line, err := os.ReadFile(args[2])
	if err != nil {
		return "", err
	}
	return "a proof of the line", torchwood.VerifyProof(p, tlog.RecordHash(line), text)
}

// site is a log that is served.
type site struct {
	*client.HTTPFetcher
	prefix   string
	verifier note.Verifier
}

// ReadCheckpoint implements [fsck.Fetcher].
func (s site) ReadCheckpoint(ctx context.Context) ([]byte, error) {
	if *checkpoint != "" {
		return os.ReadFile(*checkpoint)
	}
	return s.HTTPFetcher.ReadCheckpoint(ctx)
}

// atOnce is how many requests there are at once.
const atOnce = 8

func newSite(prefix, vkey string) (s site, err error) {
	http.DefaultTransport.(*http.Transport).MaxConnsPerHost = atOnce
	s.prefix = prefix
	if s.verifier, err = note.NewVerifier(vkey); err != nil {
		return s, err
	}
	u, err := url.Parse(prefix)
	if err != nil {
		return s, err
	}
	s.HTTPFetcher, err = client.NewHTTPFetcher(u, &http.Client{Transport: headed{}})
	return s, err
}

// headed is a transport that sets the header.
type headed struct{}

func (headed) RoundTrip(r *http.Request) (*http.Response, error) {
	if name, value, ok := strings.Cut(*header, ": "); ok {
		r = r.Clone(r.Context())
		r.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// counted counts the tiles that are authenticated.
type counted struct {
	torchwood.TileReader
	tiles map[tlog.Tile]bool
}

func (c counted) SaveTiles(tiles []tlog.Tile, _ [][]byte) {
	for _, t := range tiles {
		c.tiles[t] = true
	}
}

func tiles(ctx context.Context, args []string) (string, error) {
	s, err := newSite(args[0], args[1])
	if err != nil {
		return "", err
	}
	fetcher, err := torchwood.NewTileFetcher(s.prefix, torchwood.WithConcurrencyLimit(atOnce),
		torchwood.WithHTTPClient(&http.Client{Transport: headed{}}))
	if err != nil {
		return "", err
	}
	signed, err := s.ReadCheckpoint(ctx)
	if *checkpoint == "" {
		signed, err = fetcher.ReadEndpoint(ctx, "checkpoint")
	}
	if err != nil {
		return "", err
	}
	c, _, err := torchwood.VerifyCheckpoint(signed, torchwood.ThresholdPolicy(2,
		torchwood.SingleVerifierPolicy(s.verifier), torchwood.OriginPolicy(s.verifier.Name())))
	if err != nil {
		return "", err
	}
	reader := counted{fetcher, make(map[tlog.Tile]bool)}
	var first []int64 // hash of each tile
	wanted := tlog.NewTiles(torchwood.TileHeight, 0, c.N)
	for _, t := range wanted {
		first = append(first, tlog.StoredHashIndex(t.L*t.H, t.N<<t.H))
	}
	if _, err := torchwood.TileHashReaderWithContext(ctx, c.Tree, reader).ReadHashes(first); err != nil {
		return "", err
	}
	for _, t := range wanted {
		if !reader.tiles[t] {
			return "", fmt.Errorf("the tile %s was not read", torchwood.TilePath(t))
		}
	}
	return fmt.Sprintf("%d tiles of %d records", len(wanted), c.N), nil
}

func consistency(ctx context.Context, args []string) (string, error) {
	s, err := newSite(args[0], args[1])
	if err != nil {
		return "", err
	}
	old, err := os.ReadFile(args[2])
	if err != nil {
		return "", err
	}
	tracker, err := client.NewLogStateTracker(ctx, s.ReadTile, old, s.verifier, s.verifier.Name(),
		client.UnilateralConsensus(s.ReadCheckpoint))
	if err != nil {
		return "", err
	}
	from := tracker.Latest().Size
	_, hashes, _, err := tracker.Update(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("from %d to %d by %d hashes", from, tracker.Latest().Size, len(hashes)), nil
}

// readLines reads the lines of the records of a log, at least as many as a checkpoint covers.
func readLines(file string, size uint64) ([][]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	if uint64(len(lines)) < size {
		return nil, fmt.Errorf("there are %d lines, and %d records", len(lines), size)
	}
	return lines, nil
}

func proofs(ctx context.Context, args []string) (string, error) {
	s, err := newSite(args[0], args[1])
	if err != nil {
		return "", err
	}
	c, _, _, err := client.FetchCheckpoint(ctx, s.ReadCheckpoint, s.verifier, s.verifier.Name())
	if err != nil {
		return "", err
	}
	lines, err := readLines(args[2], c.Size)
	if err != nil {
		return "", err
	}
	builder, err := client.NewProofBuilder(ctx, c.Size, s.ReadTile)
	if err != nil {
		return "", err
	}
	proven := 0
	for i := range c.Size {
		if (c.Size-1-i)%*every != 0 || len(lines[i]) == 0 {
			continue
		}
		hashes, err := builder.InclusionProof(ctx, i)
		if err != nil {
			return "", err
		}
		leaf := rfc6962.DefaultHasher.HashLeaf(lines[i])
		if err := proof.VerifyInclusion(rfc6962.DefaultHasher, i, c.Size, leaf, hashes, c.Hash); err != nil {
			return "", fmt.Errorf("record %d: %w", i, err)
		}
		proven++
	}
	return fmt.Sprintf("proofs of %d lines in %d records", proven, c.Size), nil
}

// bundled serves the lines of a file in place of the bundles that the log does not have.
type bundled struct {
	site
	lines [][]byte
	size  uint64
	*gone
}

// gone are the records without a line.
type gone struct {
	sync.Mutex
	records []uint64
}

// ReadEntryBundle implements [fsck.Fetcher]: a bundle has the hashes of its records.
func (b bundled) ReadEntryBundle(ctx context.Context, bundle uint64, width uint8) (hashes []byte, err error) {
	first, n := bundle*torchwood.TileWidth, uint64(width)
	if n == 0 {
		n = torchwood.TileWidth
	}
	var stored [][]byte
	for i := range n {
		if line := b.lines[first+i]; len(line) > 0 {
			hashes = append(hashes, rfc6962.DefaultHasher.HashLeaf(line)...)
			continue
		}
		if stored == nil {
			if stored, err = client.FetchLeafHashes(ctx, b.ReadTile, first, n, b.size); err != nil {
				return nil, err
			}
		}
		hashes = append(hashes, stored[i]...)
		b.Lock()
		b.records = append(b.records, first+i)
		b.Unlock()
	}
	return hashes, nil
}

func hashesOf(bundle []byte) (hashes [][]byte, err error) {
	size := rfc6962.DefaultHasher.Size()
	for ; len(bundle) >= size; bundle = bundle[size:] {
		hashes = append(hashes, bundle[:size])
	}
	if len(bundle) > 0 {
		err = errors.New("a bundle ends within a hash")
	}
	return hashes, err
}

func check(ctx context.Context, args []string) (string, error) {
	s, err := newSite(args[0], args[1])
	if err != nil {
		return "", err
	}
	c, _, _, err := client.FetchCheckpoint(ctx, s.ReadCheckpoint, s.verifier, s.verifier.Name())
	if err != nil {
		return "", err
	}
	lines, err := readLines(args[2], c.Size)
	if err != nil {
		return "", err
	}
	without := &gone{}
	// With less room than there are tiles, fsck v1.0.4 waits for ever once its workers have refused one.
	room := uint(len(tlog.NewTiles(torchwood.TileHeight, 0, int64(c.Size))))
	f := fsck.New(s.verifier.Name(), s.verifier, bundled{s, lines, c.Size, without}, hashesOf, fsck.Opts{N: room})
	if err := f.Check(ctx); err != nil {
		return "", err
	}
	slices.Sort(without.records)
	return fmt.Sprintf("%d records, gone %v", c.Size, without.records), nil
}
