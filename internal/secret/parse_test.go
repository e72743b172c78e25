package secret_test

import (
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad/internal/secret"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func TestWhatMintMakesParses(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{secret.APIKey, secret.AdminToken} {
		for range 1000 {
			s, id := secret.Mint(prefix, noon)
			text := s.Reveal()
			if got, ok := secret.Parse(prefix, text); !ok || got != id {
				t.Fatalf("Parse(%q) = %q, %v; want %q", text, got, ok, id)
			}
			if len(text) != len(prefix)+1+16+1+32+6 || !secret.ValidID(id) {
				t.Fatalf("%q has the wrong form", text)
			}
			second := secret.MintFor(prefix, id).Reveal()
			if got, ok := secret.Parse(prefix, second); !ok || got != id || second == text {
				t.Fatalf("second secret %q of %q: %q, %v", second, id, got, ok)
			}
		}
	}
}

func TestAnyChangedCharacterIsRefused(t *testing.T) {
	t.Parallel()
	for range 5 {
		s, _ := secret.Mint(secret.APIKey, noon)
		text := s.Reveal()
		for i := range len(text) {
			for c := range 256 {
				changed := text[:i] + string([]byte{byte(c)}) + text[i+1:]
				if changed == text {
					continue
				}
				if _, ok := secret.Parse(secret.APIKey, changed); ok {
					t.Fatalf("%q parses, though character %d of %q was changed", changed, i, text)
				}
			}
			for name, other := range map[string]string{
				"dropped": text[:i] + text[i+1:], "doubled": text[:i+1] + text[i:], "cut": text[:i],
			} {
				if _, ok := secret.Parse(secret.APIKey, other); ok {
					t.Fatalf("%q parses, though character %d of %q was %s", other, i, text, name)
				}
			}
		}
	}
}

// Scanners that look for leaked keys offline compute the same number.
func TestTheChecksumIsCRC32InBase62(t *testing.T) {
	t.Parallel()
	for range 100 {
		s, _ := secret.Mint(secret.APIKey, noon)
		body, check := s.Reveal()[:52], s.Reveal()[52:]
		var sum uint32
		for _, c := range check {
			sum = sum*62 + uint32(strings.IndexRune(alphabet, c))
		}
		if want := crc32.ChecksumIEEE([]byte(body)); sum != want {
			t.Fatalf("the checksum %q of %q is %d, want %d", check, body, sum, want)
		}
	}
}

func TestJunkIsRefusedWithoutAllocation(t *testing.T) {
	s, _ := secret.Mint(secret.APIKey, noon)
	good := s.Reveal()
	admin, _ := secret.Mint(secret.AdminToken, noon)
	junk := []string{
		"", "q", "qk_", good + " ", " " + good, good + "\n", good + good, "\t" + good[1:],
		admin.Reveal(), "qa" + good[2:], strings.ToUpper(good), strings.Repeat("a", 8<<10),
		strings.Repeat("\x80\xff", 29), strings.Repeat("_", len(good)), "日本語", strings.Repeat("x", 1<<20),
	}
	for _, text := range junk {
		if id, ok := secret.Parse(secret.APIKey, text); ok || id != "" {
			t.Errorf("Parse(%.80q) = %q, %v", text, id, ok)
		}
	}
	junk = append(junk, good)
	if n := testing.AllocsPerRun(100, func() {
		for _, text := range junk {
			secret.Parse(secret.APIKey, text)
		}
	}); n != 0 {
		t.Errorf("Parse allocates %v times", n)
	}
}

func TestIDsSortByCreation(t *testing.T) {
	t.Parallel()
	var ids []string
	for i := range 300 {
		_, id := secret.Mint(secret.APIKey, noon.Add(time.Duration(i)*37*time.Millisecond*time.Duration(i)))
		ids = append(ids, id)
	}
	if !slices.IsSorted(ids) {
		t.Error("ids do not sort by the time they were minted at")
	}
	if _, id := secret.Mint(secret.APIKey, time.Time{}); !secret.ValidID(id) {
		t.Errorf("a clock before 1970 makes the id %q", id)
	}
}

// Each place of the random part is checked for each character: with the bias of
// a plain modulo the first 8 characters would come up 25 % more often than the
// rest, 40 standard deviations away from what is asked here.
func TestNoCharacterIsMoreLikely(t *testing.T) {
	t.Parallel()
	const secrets, random = 20_000, 32
	var seen [256]int
	distinct := map[string]bool{}
	for range secrets {
		s, _ := secret.Mint(secret.APIKey, noon)
		part := s.Reveal()[len("qk_")+secret.IDLen+1:][:random]
		distinct[part] = true
		for i := range len(part) {
			seen[part[i]]++
		}
	}
	if len(distinct) != secrets {
		t.Errorf("%d secrets, %d different ones", secrets, len(distinct))
	}
	const want = secrets * random / len(alphabet)
	for i := range len(alphabet) {
		if n := seen[alphabet[i]]; n < want*94/100 || n > want*106/100 {
			t.Errorf("%q came up %d times, want about %d", alphabet[i], n, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	s, _ := secret.Mint(secret.APIKey, noon)
	f.Add(secret.APIKey, s.Reveal())
	f.Add(secret.AdminToken, s.Reveal())
	f.Add(secret.APIKey, s.Reveal()[1:])
	f.Add("", strings.Repeat("_", 58))
	f.Add("qk_", "\x00\xff")
	f.Fuzz(func(t *testing.T, prefix, text string) {
		id, ok := secret.Parse(prefix, text)
		if !ok {
			if id != "" {
				t.Fatalf("refused, yet the id is %q", id)
			}
			return
		}
		if !secret.ValidID(id) || !strings.HasPrefix(text, prefix+"_"+id+"_") {
			t.Fatalf("Parse(%q, %q) = %q", prefix, text, id)
		}
		for _, changed := range []string{text + "0", text[1:], text[:len(text)-1], "0" + text[1:]} {
			if _, ok := secret.Parse(prefix, changed); ok && changed != text {
				t.Fatalf("%q and %q both parse", text, changed)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	s, _ := secret.Mint(secret.APIKey, noon)
	text := s.Reveal()
	b.ReportAllocs()
	for b.Loop() {
		secret.Parse(secret.APIKey, text)
	}
}
