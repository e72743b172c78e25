// Package secret is the text form of a credential: how one is minted, told from
// junk without asking anybody, hashed, compared and kept out of sight.
//
// # Form
//
//	<prefix>_<id>_<random><checksum>
//
// The prefix is "qk" for an API key and "qa" for an admin token. The id is 16
// base62 characters: 7 of Unix time in milliseconds, so that ids sort by
// creation (byte by byte, until the year 2081), and 9 random ones. The random
// part is 32 base62 characters (190 bits) of crypto/rand without modulo bias.
// The checksum is the CRC-32 (IEEE) of all that stands before it, in 6 base62
// characters padded with zeros: it finds every single changed character, so
// that typing errors and guesses end in Parse and never reach a cache or a store.
//
// Base62 is 0-9A-Za-z in this order. The underscore keeps the whole text one
// word for a double click.
//
// # Storage
//
// Only Sum, the SHA-256 of the whole text, is ever stored. 190 random bits need
// no slow hash. Sums are compared in constant time.
//
// # Failure modes
//
// Nothing here fails: crypto/rand ends the process where the system has no
// randomness, and Parse answers ok = false for everything that Mint did not make.
//
// # Example
//
//	s, id := secret.Mint(secret.APIKey, time.Now())
//	fmt.Println(s)              // [redacted]
//	fmt.Println(s.Hint())       // qk_…wxyz
//	store(id, s.Sum())
//	show(s.Reveal())            // once
//
//	if id, ok := secret.Parse(secret.APIKey, presented); ok {
//		admitted := secret.Hash(presented).Equal(stored(id))
//	}
package secret
