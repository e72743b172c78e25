package admin

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/tiers"
)

// keyResource is of keys, which are made and listed as those of a tenant, and
// revoked where others are deleted: that is final, and the key stays readable.
func (s *Server) keyResource() resource[quotad.KeySpec, quotad.Key] {
	return resource[quotad.KeySpec, quotad.Key]{
		path: "/keys/", identify: func(k quotad.Key) (string, tag) { return k.ID, keyTag(k) },
		find: s.keys.Key,
		edit: func(ctx context.Context, by quotad.Actor, id string, ifMatch *tiers.Revision, edit func(*quotad.KeySpec) error) (quotad.Key, error) {
			return s.keys.Update(ctx, by, id, versionOf(ifMatch), edit)
		},
		remove: func(ctx context.Context, by quotad.Actor, id string, ifMatch *tiers.Revision) error {
			_, err := s.keys.Revoke(ctx, by, id, versionOf(ifMatch))
			return err
		},
	}
}

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
	tenant, err := named(c)
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
	return s.keyResource().created(c, key)
}

func (s *Server) listKeys(c echo.Context) error {
	tenant, err := named(c)
	if err != nil {
		return err
	}
	return list(c, func(ctx context.Context, page database.Page) ([]quotad.Key, string, error) {
		return s.keys.Keys(ctx, tenant, page)
	})
}

func (s *Server) rotateKey(c echo.Context) error {
	id, err := named(c)
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
	revision, err := s.keyResource().expected(c, id)
	if err != nil {
		return err
	}
	key, err := s.keys.Rotate(c.Request().Context(), actorOf(c), id, versionOf(revision), how.grace())
	if err != nil {
		return err
	}
	return s.keyResource().written(c, http.StatusOK, key)
}

// maxGrace is the longest that a rotated secret goes on working, in seconds.
const maxGrace = int64(apikeys.MaxGrace / time.Second)

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
		faults.Add("grace_seconds", "must be at most "+strconv.FormatInt(maxGrace, 10))
	}
	return faults
}

func (r rotation) grace() time.Duration { return time.Duration(*r.GraceSeconds) * time.Second }
