/* Tables of what clients, users and jobs have asked of a server. See tally.h. */
#include <stdio.h>

#include "net/tally.h"

void tally_init(struct tally *t)
{
	memset(t, 0, sizeof(*t));
	snprintf(t->other.name, sizeof(t->other.name), "(other)");
}

static struct tally_row **head_of(struct tally *t, const char *name)
{
	return &t->heads[hash_bytes(name, strlen(name), 1) % TALLY_ROWS];
}

/* Moves the counts of a row to "(other)" and frees its name. */
static void clear(struct tally *t, struct tally_row *r)
{
	struct tally_row **at = head_of(t, r->name);

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	t->other.requests += r->requests;
	t->other.bytes_read += r->bytes_read;
	t->other.bytes_written += r->bytes_written;
	*r = (struct tally_row){ .name = "" };
}

/* A row for a new name, or NULL: all are in use. */
static struct tally_row *take(struct tally *t)
{
	struct tally_row *oldest = NULL;

	if (t->n < TALLY_ROWS)
		return &t->rows[t->n++];
	for (uint32_t i = 0; i < TALLY_ROWS; i++) {
		struct tally_row *r = &t->rows[i];

		if (!r->sessions && (!oldest || r->used_at < oldest->used_at))
			oldest = r;
	}
	if (oldest)
		clear(t, oldest);
	return oldest;
}

struct tally_row *tally_find(struct tally *t, const char *name, uint64_t now)
{
	struct tally_row **head = head_of(t, name), *r = *head;

	while (r && strcmp(r->name, name) != 0)
		r = r->next;
	if (!r) {
		r = take(t);
		if (!r)
			return &t->other;
		snprintf(r->name, sizeof(r->name), "%s", name);
		r->next = *head;
		*head = r;
	}
	r->used_at = now;
	return r;
}

struct tally_row *tally_user(struct tally *t, uint32_t uid, uint64_t now)
{
	struct tally_row **recent = &t->recent[uid % TALLY_RECENT], *r = *recent;
	char name[16];

	if (r && r->uid == uid && r->name[0]) {
		r->used_at = now;
		return r;
	}
	snprintf(name, sizeof(name), "%u", uid);
	r = tally_find(t, name, now);
	if (r != &t->other) {
		r->uid = uid;
		*recent = r;
	}
	return r;
}

struct tally_row *tally_join(struct tally *t, struct tally_row *before, const char *name,
			     uint64_t now)
{
	char label[TALLY_NAME];
	struct tally_row *r;

	snprintf(label, sizeof(label), "%s", name);
	label_clean(label);
	tally_leave(before, now);
	r = tally_find(t, label[0] ? label : TALLY_NONE, now);
	r->sessions++;
	return r;
}

void tally_leave(struct tally_row *r, uint64_t now)
{
	if (!r)
		return;
	r->sessions--;
	r->used_at = now;
}

const struct tally_row *tally_row_at(const struct tally *t, uint32_t i)
{
	if (i > t->n)
		return NULL;
	return i < t->n ? &t->rows[i] : &t->other;
}
