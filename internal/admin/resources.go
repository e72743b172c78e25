package admin

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/tiers"
)

// resource is a kind of resource that operators manage, all in the same way: its
// handlers, and what its store does for them. S is what operators say of one, R how
// it is shown.
type resource[S spec, R any] struct {
	// path stands before the name of one, under prefix.
	path string
	// identify returns the name or id of one, and its entity tag.
	identify func(R) (name string, t tag)

	insert func(ctx context.Context, by quotad.Actor, spec S) (R, error)
	page   func(ctx context.Context, page database.Page) (items []R, next string, err error)
	find   func(ctx context.Context, name string) (R, error)
	edit   func(ctx context.Context, by quotad.Actor, name string, ifMatch *tiers.Revision, edit func(*S) error) (R, error)
	remove func(ctx context.Context, by quotad.Actor, name string, ifMatch *tiers.Revision) error
}

func (r resource[S, R]) create(c echo.Context) error {
	spec, err := decode[S](c, *new(R))
	if err != nil {
		return err
	}
	one, err := r.insert(c.Request().Context(), actorOf(c), spec)
	if err != nil {
		return err
	}
	return r.created(c, one)
}

// created answers with a new resource and where it is from now on.
func (r resource[S, R]) created(c echo.Context, one R) error {
	name, _ := r.identify(one)
	c.Response().Header().Set("Location", prefix+r.path+name)
	return r.written(c, http.StatusCreated, one)
}

// written answers with a resource after a write.
func (r resource[S, R]) written(c echo.Context, status int, one R) error {
	_, t := r.identify(one)
	c.Response().Header().Set("ETag", t.String())
	return write(c, status, one)
}

func (r resource[S, R]) list(c echo.Context) error { return list(c, r.page) }

// read answers with a resource, unless the client has it already.
func (r resource[S, R]) read(c echo.Context) error {
	name, err := named(c)
	if err != nil {
		return err
	}
	one, err := r.find(c.Request().Context(), name)
	if err != nil {
		return err
	}
	_, t := r.identify(one)
	header := c.Response().Header()
	header.Set("ETag", t.String())
	header.Set("Cache-Control", "private, no-cache")
	cond, err := parseCondition(c.Request().Header, "If-None-Match")
	if err != nil {
		return err
	}
	if cond != nil && cond.holds(t) {
		return c.NoContent(http.StatusNotModified)
	}
	return write(c, http.StatusOK, one)
}

func (r resource[S, R]) update(c echo.Context) error {
	name, err := named(c)
	if err != nil {
		return err
	}
	patch, err := decodePatch[S](c, *new(R))
	if err != nil {
		return err
	}
	revision, err := r.expected(c, name)
	if err != nil {
		return err
	}
	one, err := r.edit(c.Request().Context(), actorOf(c), name, revision, patch.apply)
	if err != nil {
		return err
	}
	return r.written(c, http.StatusOK, one)
}

func (r resource[S, R]) delete(c echo.Context) error {
	name, err := named(c)
	if err != nil {
		return err
	}
	revision, err := r.expected(c, name)
	if err != nil {
		return err
	}
	if err := r.remove(c.Request().Context(), actorOf(c), name, revision); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// expected turns If-Match into the revision that a write has to meet; nil when any
// will do. The resource is read first because a header can list several tags; that
// it still is that revision when it is written, the database decides.
func (r resource[S, R]) expected(c echo.Context, name string) (*tiers.Revision, error) {
	cond, err := parseCondition(c.Request().Header, "If-Match")
	if cond == nil || cond.any || err != nil {
		return nil, err
	}
	one, err := r.find(c.Request().Context(), name)
	if err != nil {
		return nil, err
	}
	_, now := r.identify(one)
	if !cond.matches(now) {
		return nil, quotad.ErrPreconditionFailed
	}
	return &tiers.Revision{CreatedAt: now.created, Version: now.version}, nil
}

// versionOf is all of a revision that tells one from others of an id that is given once.
func versionOf(r *tiers.Revision) *int64 {
	if r == nil {
		return nil
	}
	return &r.Version
}
