package httpapi

import (
	"encoding/json"
	"strings"
)

// members walks over the members of a JSON object, or the elements of an array, whose
// text is known to be valid.
type members struct {
	text string
	at   int
	// key and value are the current member's, raw. An element has no key.
	key, value string
}

// open enters the object; false when the text is another kind of value.
func (m *members) open() bool { return m.enter('{') }

// openArray enters the array; false when the text is another kind of value.
func (m *members) openArray() bool { return m.enter('[') }

func (m *members) enter(bracket byte) bool {
	m.space()
	if m.text[m.at] != bracket {
		return false
	}
	m.at++
	return true
}

// next moves to the next member; false when there is none.
func (m *members) next() bool {
	m.space()
	switch m.text[m.at] {
	case '}':
		return false
	case ',':
		m.at++
		m.space()
	}
	m.key = m.skip()
	m.space()
	m.at++ // the colon
	m.space()
	m.value = m.skip()
	return true
}

// nextElement moves to the next element; false when there is none.
func (m *members) nextElement() bool {
	m.space()
	switch m.text[m.at] {
	case ']':
		return false
	case ',':
		m.at++
		m.space()
	}
	m.value = m.skip()
	return true
}

func (m *members) space() {
	for m.at < len(m.text) && strings.IndexByte(" \t\r\n", m.text[m.at]) >= 0 {
		m.at++
	}
}

// skip passes one value and returns it.
func (m *members) skip() string {
	start, depth := m.at, 0
	for {
		switch m.text[m.at] {
		case '"':
			m.skipString()
		case '{', '[':
			depth++
			m.at++
		case '}', ']':
			depth--
			m.at++
		case ',', ':', ' ', '\t', '\r', '\n':
			m.at++ // only inside of an object or array
		default:
			for m.at < len(m.text) && strings.IndexByte(",:]} \t\r\n", m.text[m.at]) < 0 {
				m.at++
			}
		}
		if depth == 0 {
			return m.text[start:m.at]
		}
	}
}

func (m *members) skipString() {
	for m.at++; m.text[m.at] != '"'; m.at++ {
		if m.text[m.at] == '\\' {
			m.at++
		}
	}
	m.at++
}

// unquote is what a raw JSON string stands for.
func unquote(raw string) string {
	if strings.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var text string
	_ = json.Unmarshal([]byte(raw), &text) // known to be valid
	return text
}
