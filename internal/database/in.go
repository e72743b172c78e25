package database

import (
	"slices"
	"strconv"
	"strings"
)

// MaxIn is the most values of one IN list.
const MaxIn = 128

// inSizes are the lengths of IN lists: few, so that the database sees few different texts.
var inSizes = []int{1, 2, 8, 64, MaxIn}

// In returns the list "$1, $2, …" of an IN over values, 1 to MaxIn, and its arguments: the last value is repeated up to
// the next of a few lengths.
func In[T any](values []T) (list string, args []any) {
	size := inSizes[slices.IndexFunc(inSizes, func(n int) bool { return n >= len(values) })]
	placeholders := make([]string, size)
	args = make([]any, size)
	for i := range size {
		placeholders[i] = "$" + strconv.Itoa(i+1)
		args[i] = values[min(i, len(values)-1)]
	}
	return strings.Join(placeholders, ", "), args
}
