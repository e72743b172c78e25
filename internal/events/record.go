package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
)

// channel is what Postgres notifies on.
const channel = "quotad"

// maxPayload is the longest payload of a notification, in bytes.
const maxPayload = 7999

// Record enters one write into the table as a part of its transaction, and has everybody told when that is committed.
// action is resource and verb, such as "key.rotated"; target is the resource's id or name, tenant the tenant concerned or
// "", version the resource's after the write. before and after are the resource as the API shows it, nil on creation and
// deletion; one with a "secret" of its own is refused, and the text of a credential anywhere in them is replaced.
func (l *Log) Record(ctx context.Context, tx *database.Tx, by quotad.Actor, action string, r quotad.Resource,
	target, tenant string, version int64, before, after any) error {
	was, err := encode(before)
	if err != nil {
		return fmt.Errorf("record %s of %s: before: %w", action, target, err)
	}
	is, err := encode(after)
	if err != nil {
		return fmt.Errorf("record %s of %s: after: %w", action, target, err)
	}
	_, err = tx.ExecContext(ctx, `
		INSERT INTO events (at, action, actor_type, actor_id, actor_name, request_id, address,
			resource, target, tenant, version, before, after)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
		database.Time(l.o.Now()), action, by.Type, by.ID, by.Name, by.RequestID, by.Address,
		string(r), target, tenant, version, was, is)
	if err != nil {
		return fmt.Errorf("record %s of %s: %w", action, target, err)
	}
	notice := Notice{Resource: r, ID: target, Tenant: tenant, Version: version}
	if tx.Engine() == database.Postgres {
		if err := notify(ctx, tx, notice); err != nil {
			return fmt.Errorf("notify of %s of %s: %w", action, target, err)
		}
	}
	tx.AfterCommit(func() { l.deliver(notice) })
	return nil
}

func notify(ctx context.Context, tx *database.Tx, message any) error {
	payload, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(payload) > maxPayload {
		return fmt.Errorf("the payload has %d bytes, more than %d", len(payload), maxPayload)
	}
	_, err = tx.ExecContext(ctx, "SELECT pg_notify($1, $2)", channel, string(payload))
	return err
}

// encode is a resource as JSON text, nil where there is none.
func encode(resource any) (*string, error) {
	raw, err := json.Marshal(resource)
	if err != nil {
		return nil, err
	}
	if string(raw) == "null" {
		return nil, nil
	}
	if hasSecret(raw) {
		return nil, errors.New("it has a secret")
	}
	text := secret.Redact(string(raw))
	return &text, nil
}

// hasSecret reports whether a resource as JSON shows a secret of its own. What operators keep in its fields, such as a
// "secret" in a tenant's metadata, is theirs.
func hasSecret(raw []byte) bool {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return false // no object, so no member
	}
	for name, value := range members {
		if strings.EqualFold(name, "secret") && string(value) != "null" && string(value) != `""` {
			return true
		}
	}
	return false
}
