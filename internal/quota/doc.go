// Package quota answers the one question: may this caller do this now?
package quota
