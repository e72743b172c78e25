package admin

import (
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
)

// keyTag changes with each write, and in its view with what a key shows of the
// time: that it has expired, and when it was last used.
func keyTag(k quotad.Key) tag {
	view := string(k.Status)
	if k.LastUsedAt != nil {
		view += "-" + strconv.FormatInt(k.LastUsedAt.UnixMicro(), 36)
	}
	return tag{created: k.CreatedAt, version: k.Version, view: view}
}

func (s *Server) createKey(c echo.Context) error {
	tenant, err := named(c, "name")
	if err != nil {
		return err
	}
	spec, err := decode[quotad.KeySpec](c, quotad.Key{})
	if err != nil {
		return err
	}
	key, err := s.keys.Create(c.Request().Context(), actorOf(c), tenant, spec)
	if err != nil {
		return err
	}
	return created(c, "/keys/"+key.ID, keyTag(key), key)
}

func (s *Server) listKeys(c echo.Context) error {
	tenant, err := named(c, "name")
	if err != nil {
		return err
	}
	page, err := pageOf(c)
	if err != nil {
		return err
	}
	keys, next, err := s.keys.Keys(c.Request().Context(), tenant, page)
	if err != nil {
		return err
	}
	return list(c, keys, next)
}

func (s *Server) readKey(c echo.Context) error {
	id, err := named(c, "id")
	if err != nil {
		return err
	}
	key, err := s.keys.Key(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return show(c, keyTag(key), key)
}

func (s *Server) updateKey(c echo.Context) error {
	id, err := named(c, "id")
	if err != nil {
		return err
	}
	patch, err := decodePatch[quotad.KeySpec](c, quotad.Key{})
	if err != nil {
		return err
	}
	version, err := s.expectedKey(c, id)
	if err != nil {
		return err
	}
	key, err := s.keys.Update(c.Request().Context(), actorOf(c), id, version, patch.apply)
	if err != nil {
		return err
	}
	return updated(c, keyTag(key), key)
}

// revokeKey is final. The key stays readable, and its usage with it.
func (s *Server) revokeKey(c echo.Context) error {
	id, err := named(c, "id")
	if err != nil {
		return err
	}
	version, err := s.expectedKey(c, id)
	if err != nil {
		return err
	}
	if _, err := s.keys.Revoke(c.Request().Context(), actorOf(c), id, version); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func (s *Server) rotateKey(c echo.Context) error {
	id, err := named(c, "id")
	if err != nil {
		return err
	}
	how, err := decodeOptional[rotation](c, rotation{})
	if err != nil {
		return err
	}
	if err := how.Validate().Err(); err != nil {
		return err
	}
	// No edit is lost to a rotation, so that the key is as If-Match says when it
	// is read is enough.
	if _, err := s.expectedKey(c, id); err != nil {
		return err
	}
	key, err := s.keys.Rotate(c.Request().Context(), actorOf(c), id, how.grace())
	if err != nil {
		return err
	}
	return updated(c, keyTag(key), key)
}

// expectedKey is the version that If-Match asks for.
func (s *Server) expectedKey(c echo.Context, id string) (*int64, error) {
	return expected(c.Request().Header, func() (tag, error) {
		key, err := s.keys.Key(c.Request().Context(), id)
		return keyTag(key), err
	})
}

// maxGrace is the longest that a rotated secret goes on working, in seconds.
const maxGrace = 30 * 24 * 60 * 60

// rotation says how a key is to be rotated.
type rotation struct {
	// GraceSeconds is how long the secrets so far go on working; an hour by default.
	GraceSeconds *int64 `json:"grace_seconds"`
}

// SetDefaults fills what may be left out.
func (r *rotation) SetDefaults() {
	if r.GraceSeconds == nil {
		r.GraceSeconds = quotad.Units(3600)
	}
}

// Validate returns the faults of a rotation whose defaults are set.
func (r rotation) Validate() quotad.Faults {
	var faults quotad.Faults
	switch {
	case *r.GraceSeconds < 0:
		faults.Add("grace_seconds", "must be at least 0")
	case *r.GraceSeconds > maxGrace:
		faults.Add("grace_seconds", "must be at most "+strconv.Itoa(maxGrace))
	}
	return faults
}

func (r rotation) grace() time.Duration { return time.Duration(*r.GraceSeconds) * time.Second }
