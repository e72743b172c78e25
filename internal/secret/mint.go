package secret

import (
	"crypto/rand"
	"time"
)

// The prefixes: what a credential is for.
const (
	APIKey     = "qk"
	AdminToken = "qa"
)

// Lengths in characters.
const (
	// IDLen is the length of an id.
	IDLen = timeLen + 9

	timeLen   = 7
	randomLen = 32
	checkLen  = 6
)

// alphabet is in byte order, so that equally long numbers sort as texts.
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Mint returns a new credential and its id, which is not secret. Ids minted at
// a later millisecond sort after those of an earlier one.
func Mint(prefix string, now time.Time) (s Secret, id string) {
	var b [IDLen]byte
	putNumber(b[:timeLen], uint64(max(0, now.UnixMilli())))
	putRandom(b[timeLen:])
	id = string(b[:])
	return MintFor(prefix, id), id
}

// MintFor returns a new credential for an id that Mint made: the second secret
// of the same key.
func MintFor(prefix, id string) Secret {
	b := make([]byte, 0, len(prefix)+1+len(id)+1+randomLen+checkLen)
	b = append(b, prefix...)
	b = append(b, '_')
	b = append(b, id...)
	b = append(b, '_')
	b = b[:len(b)+randomLen]
	putRandom(b[len(b)-randomLen:])
	sum := checksum(string(b))
	b = append(b, sum[:]...)
	text := string(b)
	return Secret{text: &text}
}

// putRandom fills b with characters that are each equally likely.
func putRandom(b []byte) {
	// Bytes from 248 on are thrown away: 256 is no multiple of 62, and without
	// this the first characters of the alphabet would come up more often.
	const fair = 256 - 256%len(alphabet)
	var pool [64]byte
	for n := 0; n < len(b); {
		rand.Read(pool[:]) // never fails: it ends the process instead
		for _, r := range pool {
			if n < len(b) && int(r) < fair {
				b[n] = alphabet[int(r)%len(alphabet)]
				n++
			}
		}
	}
}

// putNumber writes n into b, most significant character first, padded with zeros.
func putNumber(b []byte, n uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = alphabet[n%uint64(len(alphabet))]
		n /= uint64(len(alphabet))
	}
}
