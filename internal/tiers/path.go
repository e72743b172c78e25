package tiers

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxPath is the longest path that is matched, in bytes as sent.
const maxPath = 8 << 10

// cleaned is a path as the list of its segments, so that every spelling of one
// path is one value: decoded, case folded, without empty and "." segments.
type cleaned struct {
	text []byte // the segments, one behind the other
	ends []int  // where each segment ends in text
}

func (p cleaned) segment(i int) []byte {
	start := 0
	if i > 0 {
		start = p.ends[i-1]
	}
	return p.text[start:p.ends[i]]
}

// reading is one of the ways in which servers read what the URL specification
// leaves to them. The zero reading is the one nearest to that specification.
type reading uint8

const (
	// slashSplits reads an encoded slash as the end of a segment, not a part of it.
	slashSplits reading = 1 << iota
	// paramsDrop ends a segment's name at the first ";".
	paramsDrop
	// hostDrops reads what follows slashes at the beginning as a host, as in a URL
	// without a scheme ("//host/path"), not as the first segment.
	hostDrops

	readings
)

// clean reads a path as it stood on the request line. It appends to into, whose
// capacity it uses, and reports which readings the path leaves open. fault is ""
// or says what is wrong with the path, to be read behind "the path ".
//
// What is refused here is refused because servers disagree on it, or because a
// path that means it would not say it: a guard that guesses is a way around the
// guard.
func clean(raw string, as reading, into cleaned) (p cleaned, open reading, fault string) {
	if raw == "" || raw[0] != '/' {
		return into, 0, "does not start with /"
	}
	if len(raw) > maxPath {
		return into, 0, "is longer than 8192 bytes"
	}
	text, ends := into.text[:0], into.ends[:0]
	first := 1
	if host := strings.TrimLeft(raw, "/"); host != "" && len(raw)-len(host) > 1 {
		open |= hostDrops
		if as&hostDrops != 0 {
			_, rest, _ := strings.Cut(host, "/")
			first = len(raw) - len(rest)
		}
	}
	start, ascii, dropping := 0, true, false
	for i := first; i <= len(raw); i++ {
		split := i == len(raw) || raw[i] == '/'
		var c byte
		if !split {
			c = raw[i]
			switch c {
			case '?', '#':
				return into, 0, "has a query or a fragment"
			case '%':
				var ok bool
				if c, ok = unhex(raw, i+1); !ok {
					return into, 0, "has a % that is not followed by two hexadecimal digits"
				}
				i += 2
			}
			switch {
			case c < ' ' || c == 0x7f:
				return into, 0, "has a control character"
			case c == '\\':
				return into, 0, "has a backslash"
			case c == '/':
				open |= slashSplits
				split = as&slashSplits != 0
			case c == ';':
				open |= paramsDrop
				dropping = dropping || as&paramsDrop != 0
			case 'A' <= c && c <= 'Z':
				c += 'a' - 'A'
			case c >= utf8.RuneSelf:
				ascii = false
			}
		}
		if !split {
			if !dropping {
				text = append(text, c)
			}
			continue
		}
		if !ascii {
			var ok bool
			if text, ok = foldTail(text, start); !ok {
				return into, 0, "is not UTF-8 or has a control character"
			}
		}
		switch string(text[start:]) {
		case "", ".":
			text = text[:start]
		case "..":
			return into, 0, `has a ".." segment`
		default:
			ends = append(ends, len(text))
		}
		start, ascii, dropping = len(text), true, false
	}
	return cleaned{text, ends}, open, ""
}

// unhex decodes the two hexadecimal digits of s at i.
func unhex(s string, i int) (c byte, ok bool) {
	if i+2 > len(s) {
		return 0, false
	}
	for _, d := range []byte{s[i], s[i+1]} {
		switch {
		case '0' <= d && d <= '9':
			d -= '0'
		case 'a' <= d && d <= 'f':
			d -= 'a' - 10
		case 'A' <= d && d <= 'F':
			d -= 'A' - 10
		default:
			return 0, false
		}
		c = c<<4 | d
	}
	return c, true
}

// foldTail folds text from start on in place; no rune's folded form is longer
// than the rune.
func foldTail(text []byte, start int) ([]byte, bool) {
	to := start
	for from := start; from < len(text); {
		r, n := utf8.DecodeRune(text[from:])
		if r == utf8.RuneError && n == 1 || unicode.IsControl(r) {
			return text, false
		}
		from += n
		to += utf8.EncodeRune(text[to:to+n], foldRune(r))
	}
	return text[:to], true
}

// foldRune returns the same rune for all runes that strings.EqualFold takes for
// equal, lower case where that is an ASCII letter.
func foldRune(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	if 'A' <= least && least <= 'Z' {
		least += 'a' - 'A'
	}
	return least
}
