package replies

import "testing"

func TestOrigins(t *testing.T) {
	t.Parallel()
	const app = "https://app.example.com"
	none, one, all := NewOrigins(nil), NewOrigins([]string{app}), NewOrigins([]string{"*"})
	for _, c := range []struct {
		origins Origins
		origin  string
		want    string
	}{
		{Origins{}, app, ""}, {none, app, ""}, {none, "", ""},
		{one, app, app}, {one, "https://evil.example.com", ""}, {one, "*", ""}, {one, "", ""},
		{all, app, "*"}, {all, "", ""},
	} {
		if got := c.origins.Allow(c.origin); got != c.want {
			t.Errorf("%v, %q: got %q, want %q", c.origins, c.origin, got, c.want)
		}
	}
	if none.Vary() || !one.Vary() || all.Vary() {
		t.Error("only listed origins make answers differ")
	}
}
