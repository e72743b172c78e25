package quotad

import (
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// The Append functions write the same JSON as encoding/json does of the same
// value, except that <, > and & stand for themselves and a nil list of limits
// is []. A front door answers every call with one, so they use no reflection.

// AppendJSON appends the decision as JSON to b.
func (d *Decision) AppendJSON(b []byte) []byte {
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, d.Allowed)
	b = append(b, `,"tenant":`...)
	b = AppendString(b, d.Tenant)
	b = append(b, `,"key_id":`...)
	b = AppendString(b, d.KeyID)
	b = append(b, `,"tier":`...)
	b = AppendString(b, d.Tier)
	b = append(b, `,"route_group":`...)
	b = AppendString(b, d.RouteGroup)
	b = append(b, `,"cost":`...)
	b = strconv.AppendInt(b, d.Cost, 10)
	b = append(b, `,"retry_after":`...)
	b = strconv.AppendInt(b, d.RetryAfter, 10)
	b = append(b, `,"delay_ms":`...)
	b = strconv.AppendInt(b, d.DelayMS, 10)
	b = append(b, `,"degraded":`...)
	b = strconv.AppendBool(b, d.Degraded)
	b = append(b, `,"limits":`...)
	b = AppendLimits(b, d.Limits)
	return append(b, '}')
}

// AppendLimits appends the limits as a JSON array to b.
func AppendLimits(b []byte, limits []LimitStatus) []byte {
	b = append(b, '[')
	for i := range limits {
		if i > 0 {
			b = append(b, ',')
		}
		b = limits[i].appendJSON(b)
	}
	return append(b, ']')
}

func (l *LimitStatus) appendJSON(b []byte) []byte {
	b = append(b, `{"policy":`...)
	b = AppendString(b, l.Policy)
	b = append(b, `,"scope":`...)
	b = AppendString(b, string(l.Scope))
	b = append(b, `,"algorithm":`...)
	b = AppendString(b, string(l.Algorithm))
	b = append(b, `,"limit":`...)
	b = strconv.AppendInt(b, l.Limit, 10)
	b = append(b, `,"remaining":`...)
	b = strconv.AppendInt(b, l.Remaining, 10)
	b = append(b, `,"window":`...)
	b = strconv.AppendInt(b, l.Window, 10)
	b = append(b, `,"reset_after":`...)
	b = strconv.AppendInt(b, l.ResetAfter, 10)
	b = append(b, `,"retry_after":`...)
	b = strconv.AppendInt(b, l.RetryAfter, 10)
	b = append(b, `,"allowed":`...)
	b = strconv.AppendBool(b, l.Allowed)
	b = append(b, `,"shadow":`...)
	b = strconv.AppendBool(b, l.Shadow)
	return append(b, '}')
}

// AppendJSON appends the problem as JSON to b.
func (p *Problem) AppendJSON(b []byte) []byte {
	b = append(b, `{"error":`...)
	b = AppendString(b, string(p.Error))
	b = append(b, `,"message":`...)
	b = AppendString(b, p.Message)
	if p.RetryAfter != 0 {
		b = append(b, `,"retry_after":`...)
		b = strconv.AppendInt(b, p.RetryAfter, 10)
	}
	b = append(b, `,"type":`...)
	b = AppendString(b, p.Type)
	b = append(b, `,"title":`...)
	b = AppendString(b, p.Title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(p.Status), 10)
	b = append(b, `,"detail":`...)
	b = AppendString(b, p.Detail)
	if len(p.ViolatedPolicies) > 0 {
		b = append(b, `,"violated-policies":[`...)
		for i, policy := range p.ViolatedPolicies {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendString(b, policy)
		}
		b = append(b, ']')
	}
	if len(p.Fields) > 0 {
		b = append(b, `,"fields":{`...)
		for i, field := range slices.Sorted(maps.Keys(p.Fields)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendString(b, field)
			b = append(b, ':')
			b = AppendString(b, p.Fields[field])
		}
		b = append(b, '}')
	}
	if len(p.Limits) > 0 {
		b = append(b, `,"limits":`...)
		b = AppendLimits(b, p.Limits)
	}
	return append(b, '}')
}

// AppendString appends s as a JSON string to b. Bytes that are not UTF-8 become
// the replacement character.
func AppendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		r, size := rune(c), 1
		if c >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(s[i:])
			if (r != utf8.RuneError || size > 1) && r != '\u2028' && r != '\u2029' {
				i += size
				continue
			}
		}
		b = append(b, s[start:i]...)
		switch r {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		case utf8.RuneError:
			b = append(b, `\ufffd`...)
		case '\u2028', '\u2029':
			b = append(b, `\u202`...)
			b = append(b, hex[r&0xf])
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		}
		i += size
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}
