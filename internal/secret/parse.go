package secret

import "hash/crc32"

// Parse returns the id inside a credential. ok is false unless the prefix, the
// length, the alphabet and the checksum are those of Mint; whether such a
// credential was ever handed out is for a store to say. It does not allocate,
// whatever the text: the id is a part of it.
func Parse(prefix, text string) (id string, ok bool) {
	idAt := len(prefix) + 1
	randomAt := idAt + IDLen + 1
	checkAt := randomAt + randomLen
	if len(text) != checkAt+checkLen ||
		text[:len(prefix)] != prefix || text[idAt-1] != '_' || text[randomAt-1] != '_' ||
		!base62(text[idAt:randomAt-1]) || !base62(text[randomAt:]) {
		return "", false
	}
	if sum := checksum(text[:checkAt]); string(sum[:]) != text[checkAt:] {
		return "", false
	}
	return text[idAt : randomAt-1], true
}

// ValidID reports whether id has the form of a minted id, so that a lookup of
// anything else need not be made.
func ValidID(id string) bool { return len(id) == IDLen && base62(id) }

func base62(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// checksum is the CRC-32 (IEEE) of s in base62. 62^6 is above 2^32, so that
// different sums have different texts.
func checksum(s string) (b [checkLen]byte) {
	// By the table and not by crc32.ChecksumIEEE, which wants the text as a
	// slice and would make Parse allocate.
	crc := ^uint32(0)
	for i := range len(s) {
		crc = crc32.IEEETable[byte(crc)^s[i]] ^ crc>>8
	}
	putNumber(b[:], uint64(^crc))
	return b
}
