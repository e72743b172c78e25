package replies

import (
	"net/http"
	"strconv"
)

// Values gathers the values of an answer's headers in one text, so that they cost
// two allocations however many they are. The zero value is empty.
type Values struct {
	text  []byte
	names [maxValues]string
	ends  [maxValues]int
	n     int
}

// maxValues is the most headers that one answer gathers.
const maxValues = 24

// Set adds a header. Names are written as given.
func (v *Values) Set(name, value string) {
	v.text = append(v.text, value...)
	v.end(name)
}

// SetInt adds a header whose value is a whole number.
func (v *Values) SetInt(name string, n int64) {
	v.text = strconv.AppendInt(v.text, n, 10)
	v.end(name)
}

// end makes what was appended since the last end the value of a header.
func (v *Values) end(name string) {
	v.names[v.n], v.ends[v.n] = name, len(v.text)
	v.n++
}

// Len is how many headers were gathered.
func (v *Values) Len() int { return v.n }

// Each calls add with each header, in order, and empties v.
func (v *Values) Each(add func(i int, name, value string)) {
	text, start := string(v.text), 0
	for i := range v.n {
		add(i, v.names[i], text[start:v.ends[i]])
		start = v.ends[i]
	}
	v.Reset()
}

// Flush moves the values into the header.
func (v *Values) Flush(h http.Header) {
	values := make([]string, v.n)
	v.Each(func(i int, name, value string) {
		values[i] = value
		h[name] = values[i : i+1 : i+1]
	})
}

// Reset empties v and keeps its memory.
func (v *Values) Reset() { v.text, v.n = v.text[:0], 0 }
