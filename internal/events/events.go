package events

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

// Filter says which events are asked for. What is "" or the zero time leaves nothing out.
type Filter struct {
	Tenant   string
	Resource quotad.Resource
	// Target is the resource's id or name.
	Target string
	// Action is resource and verb, such as "key.rotated".
	Action string
	// ActorID is an admin token's id.
	ActorID string
	// Since and Until bound the time: at or after Since, before Until.
	Since, Until time.Time
}

// Events returns a page of the events that fit the filter, the newest first, and the cursor of the next page.
func (l *Log) Events(ctx context.Context, f Filter, page database.Page) (items []quotad.Event, next string, err error) {
	where, args, list, err := f.where()
	if err != nil {
		return nil, "", err
	}
	var before int64
	rows, after, err := page.Start(list, &before)
	if err != nil {
		return nil, "", err
	}
	if after {
		args = append(args, before)
		where = append(where, fmt.Sprintf("id < $%d", len(args)))
	}
	query := `SELECT id, at, action, actor_type, actor_id, actor_name, request_id, address, resource, target, tenant, before, after
		FROM events`
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	args = append(args, rows)
	query += fmt.Sprintf(" ORDER BY id DESC LIMIT $%d", len(args))

	found, err := l.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list events: %w", err)
	}
	items = []quotad.Event{}
	err = found.Each(func() error {
		e, err := scan(found)
		items = append(items, e)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list events: %w", err)
	}
	return database.Cut(page, list, items, func(e quotad.Event) int64 { return e.ID })
}

// where is the filter as conditions with their arguments, and the name of the list that it makes.
func (f Filter) where() (conditions []string, args []any, list string, err error) {
	list = "events"
	for _, c := range []struct{ column, value string }{
		{"tenant", f.Tenant}, {"resource", string(f.Resource)}, {"target", f.Target},
		{"action", f.Action}, {"actor_id", f.ActorID},
	} {
		if c.value == "" {
			continue
		}
		if !utf8.ValidString(c.value) || strings.ContainsRune(c.value, 0) {
			return nil, nil, "", quotad.NewError(quotad.CodeInvalidRequest, c.column+" is not text")
		}
		args = append(args, c.value)
		conditions = append(conditions, fmt.Sprintf("%s = $%d", c.column, len(args)))
		list += fmt.Sprintf(" %s=%q", c.column, c.value)
	}
	for _, b := range []struct {
		comparison string
		at         time.Time
	}{{">=", f.Since}, {"<", f.Until}} {
		if b.at.IsZero() {
			continue
		}
		args = append(args, database.Time(b.at))
		conditions = append(conditions, fmt.Sprintf("at %s $%d", b.comparison, len(args)))
		list += fmt.Sprintf(" at%s%d", b.comparison, database.Time(b.at).UnixMicro())
	}
	return conditions, args, list, nil
}

func scan(rows *database.Rows) (e quotad.Event, err error) {
	var before, after *string
	err = rows.Scan(&e.ID, &e.At, &e.Action, &e.Actor.Type, &e.Actor.ID, &e.Actor.Name, &e.Actor.RequestID, &e.Actor.Address,
		&e.Resource, &e.Target, &e.Tenant, &before, &after)
	if before != nil {
		e.Before = json.RawMessage(*before)
	}
	if after != nil {
		e.After = json.RawMessage(*after)
	}
	return e, err
}
